"""bench.policies: what policies predict, and what is measured under their placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import MISSING, number, table

_NAMES = {
    "edge-server": "Filters and hard work behind them, one edge",
    "traffic": "The traffic application with cameras, three edges",
}


def _figures(result: Result) -> str:
    parts = [
        "Each figure as measured, and as predicted for what was offered. A prediction of the"
        " cloud's engine is what its jobs use, beside what the engine was measured to use while"
        " idle. Where more is offered than a placement carries, a queue grows and latency with it"
        " for as long as it is measured: none is predicted."
    ]
    for cell in result["summary"]["cells"]:
        offered = cell["policies"][0]["offered_per_s"]
        parts += [
            f"**{_NAMES[cell['application']]}**; {number(offered)} records/s are offered; the"
            f" cloud's engine uses {number(cell['idle_cloud_cores'])} cores while idle.",
            table(_HEADS, [_row(outcome) for outcome in cell["policies"]]),
            *_exceeded(cell),
        ]
    return "\n\n".join(parts)


_HEADS = [
    "policy",
    ">jobs moved",
    "limits kept",
    ">records/s at the sink",
    ">predicted",
    ">latency p95, ms",
    ">predicted, mean",
    ">WAN, kB/s",
    ">predicted",
    ">cloud, cores",
    ">predicted",
    ">machine",
]


def _row(outcome: Result) -> Sequence[object]:
    measured, predicted = outcome["measured"], outcome["predicted"]
    latency = predicted["latency_ms"]
    return (
        f"`{outcome['policy']}`",
        outcome["moves"],
        "yes" if outcome["within_limits"] else "**no**",
        number(measured["sink_per_s"]),
        number(predicted["sink_per_s"]),
        number(measured["p95_ms"]) + ("" if measured["keeps_up"] else ", grows"),
        "grows" if not predicted["keeps_up"] else MISSING if latency is None else number(latency),
        number(measured["wan_bytes_per_s"] / 1000),
        number(predicted["wan_bytes_per_s"] / 1000),
        number(measured["cloud_engine_cores"]),
        number(predicted["cloud_engine_cores"]),
        f"{100 * outcome['machine_cpu']:.0f} %",
    )


def _exceeded(cell: Result) -> list[str]:
    """Which limits placements exceed, if any."""
    lines = [
        f"- `{outcome['policy']}` finds no placement within the limits: "
        + "; ".join(outcome["violations"])
        for outcome in cell["policies"]
        if not outcome["within_limits"]
    ]
    return ["\n".join(lines)] if lines else []


_FIGURES = (
    ("sink_per_s", 1.0, "records/s at the sink"),
    ("wan_bytes_per_s", 1e-3, "up the uplinks, kB/s"),
    ("cloud_engine_cores", 1.0, "the cloud's engine, cores"),
)


def _draw(result: Result) -> Any:
    cells = result["summary"]["cells"]
    figure, _ = style.figure(1, height=0.6 + 2.2 * len(cells))
    figure.clear()
    grid = figure.subplots(len(cells), len(_FIGURES), sharey="row", squeeze=False)
    handles: list[Any] = []
    for cell, row in zip(cells, grid, strict=True):
        names = [outcome["policy"] for outcome in cell["policies"]]
        for (key, scale, text), axes in zip(_FIGURES, row, strict=True):
            handles = []
            for side, offset, color in (
                ("measured", -0.2, style.BLUE),
                ("predicted", 0.2, style.ORANGE),
            ):
                values = [(it[side][key] or 0.0) * scale for it in cell["policies"]]
                places = [at + offset for at in range(len(names))]
                handles.append(axes.barh(places, values, 0.38, color=color))
            axes.set_yticks(range(len(names)), names)
            axes.grid(visible=False, axis="y")
            axes.set_xlabel(text)
        row[0].invert_yaxis()
        row[0].set_title(cell["application"])
    style.legend_above(figure, handles, ["measured", "predicted"])
    return figure


def _headline(result: Result) -> list[tuple[str, str]]:
    cell = result["summary"]["cells"][-1]
    by_name = {outcome["policy"]: outcome["measured"] for outcome in cell["policies"]}
    sinks = [number(by_name[name]["sink_per_s"]) for name in ("all-cloud", "milp")]
    return [
        (
            f"Records a second at the sink ({cell['application']}), all in the cloud, then where"
            " `milp` places it",
            f"{sinks[0]}, then {sinks[1]}",
        )
    ]


SECTION = Section(
    name="policies",
    title="Policies compared for real",
    question="Does what each placement policy predicts come true, and which one is best?",
    set_up="Two applications start all in the cloud, behind uplinks of 2 Mb/s that cannot carry"
    " what is offered; an edge's engine has half a core. One analysis of that is what all policies"
    " place by. Each placement is deployed as its YAML, loaded until what arrives is steady, and"
    " measured; at the end the uplinks are opened, and what is missing then is lost.",
    target="policies",
    figures=_figures,
    plots=[
        Plot(
            "policies",
            "Records a second at the sink, bytes up the uplinks and cores of the cloud's engine"
            " under each policy's placement, measured beside predicted",
            _draw,
        )
    ],
    root=True,
    headline=_headline,
    differences=lambda _: [
        "flink-placement wants its scheduling policies compared; it publishes no figures of such a"
        " comparison, and places operators of one job, not jobs",
    ],
)
