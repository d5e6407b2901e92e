"""bench.fig8: a job near its data, and far from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import mean, number, table

_LOOKS: dict[str, dict[str, Any]] = {
    "local": {"color": style.BLUE, "marker": "o"},
    "remote": {"color": style.RED, "marker": "s"},
}


def _rate(run: Result) -> str:
    return f"{number(run['offered_per_s'])}/s"


def _figures(result: Result) -> str:
    summary = result["summary"]
    rows = [
        (
            _rate(it) + (" (highest)" if it["highest"] else ""),
            it["way"] + (", not judged" if it["saturated"] else ""),
            mean(it["processed_per_s"]),
            f"{number(it['p50_ms'])} / {number(it['p95_ms'])} / {number(it['p99_ms'])}",
            mean(it["p95_of_runs_ms"]),
            mean(it["wan_bytes_per_s"], scale=1e-3),
            mean(it["cpu"], "%", 100),
            f"{it['left_out']} of {it['runs']}",
            it["lost"],
        )
        for it in summary["runs"]
    ]
    heads = [
        "offered",
        "job",
        ">processed/s",
        ">latency p50 / p95 / p99, ms",
        ">p95 of a run, ms",
        ">across the WAN, kB/s",
        ">machine",
        ">runs left out",
        ">lost",
    ]
    most = summary["highest_per_s"]
    text = (
        f"Highest rate of the steps at which both keep up and the machine is at most 70 % in use:"
        f" {number(most)}/s."
        if most
        else "At no step did both keep up with the machine at most 70 % in use."
    )
    if stopped := [
        f"{number(1000 / it['interval_ms'])}/s, {it['way']}: {it['saturated']}"
        for it in summary["steps"]
        if it["saturated"]
    ]:
        text += f" It ended at {'; '.join(stopped)}."
    text += (
        " Runs during which the machine was saturated or the feed late are left out, unless most"
        " were: then the rate is marked, and not judged."
    )
    return f"{table(heads, rows)}\n\n{text}"


def _rates(runs: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(_rate(it) for it in runs))


def _draw(result: Result) -> Any:
    runs = result["summary"]["runs"]
    rates = _rates(runs)
    figure, axes = style.figure(len(rates), height=3.3)
    for each, rate in zip(axes, rates, strict=True):
        of = [it for it in runs if _rate(it) == rate]
        intervals = of[0]["over_time"]
        each.plot(
            intervals["at_s"],
            [count / 1000 for count in intervals["published"]],
            color=style.BLACK,
            linestyle="--",
            label="published",
        )
        for it in of:
            over = it["over_time"]
            each.plot(
                over["at_s"],
                [count / 1000 for count in over["processed"]],
                markersize=4,
                label=f"in results, {it['way']}",
                **_LOOKS[it["way"]],
            )
        each.set_title(rate)
        each.set_xlabel("time, s")
        style.from_zero(each)
    axes[0].set_ylabel("detections, thousands")
    style.legend_above(figure, *axes[0].get_legend_handles_labels())
    return figure


def _draw_latency(result: Result) -> Any:
    runs = result["summary"]["runs"]
    rates = _rates(runs)
    figure, (axes,) = style.figure(height=3.2)
    for it in runs:
        look = _LOOKS[it["way"]]
        x = rates.index(_rate(it)) + (-0.1 if it["way"] == "local" else 0.1)
        if it["p50_ms"] is None:
            continue
        alpha = 0.4 if it["saturated"] else 1
        axes.plot([x, x], [it["p50_ms"], it["p99_ms"]], color=look["color"], lw=1.5, alpha=alpha)
        axes.plot(x, it["p50_ms"], linestyle="", markersize=8, alpha=alpha, **look)
        for key, mark in (("p95_ms", "_"), ("p99_ms", "^")):
            axes.plot(x, it[key], mark, color=look["color"], markersize=10, alpha=alpha)
    for way, look in _LOOKS.items():
        axes.plot([], [], linestyle="", label=f"{way}: p50", **look)
    axes.plot([], [], "_", color=style.BLACK, markersize=10, label="p95")
    axes.plot([], [], "^", color=style.BLACK, markersize=10, label="p99")
    axes.set_xticks(range(len(rates)), rates)
    axes.set_xlim(-0.5, len(rates) - 0.5)
    axes.set_xlabel(
        "detections offered"
        + (" (faint: not judged)" if any(it["saturated"] for it in runs) else "")
    )
    axes.set_ylabel("latency of a window's result, ms")
    axes.set_yscale("log")
    style.logarithmic(axes.yaxis)
    axes.grid(visible=False, axis="x")
    style.legend_above(figure, *axes.get_legend_handles_labels())
    return figure


def _differences(result: Result) -> list[str]:
    highest = max(it["offered_per_s"] for it in result["summary"]["runs"])
    return [
        "In the paper the count of the job in the cloud grows more slowly than that of the local"
        " job, the more so at a message per ms. Here both count everything at 500/s and 1000/s and"
        f" up to {number(highest)}/s: nothing on the way to the cloud is a limit below that rate,"
        " so distance costs latency only",
        "A difference in rate appears where something on the way is full: an uplink (see the points"
        ' at 100 kb/s under "Fog or cloud", and "Edge or server"), or the window of unacknowledged'
        " messages, which bounds a link to window / round-trip time. Brokers of a local fog allow"
        " 10 000 messages in flight, half a million a second at 18.6 ms; with Mosquitto's default"
        " of 20 it would be about 1000/s",
    ]


SECTION = Section(
    name="fig8",
    title="Near or far (figure 8)",
    question="What does it cost to run a job far from its data?",
    set_up="Local statistics of the traffic application (Job 3) at the edge beside its broker, and"
    " in the cloud 9.3 ms away, at a message per 2 ms, per 1 ms, and at the highest rate that the"
    " machine carries. The result is read at the edge, where it is wanted.",
    target="fig8",
    figures=_figures,
    plots=[
        Plot(
            "fig8",
            "Detections published, and those in the results of the job at the edge and in the"
            " cloud, over the time of a run, for each rate",
            _draw,
        ),
        Plot(
            "fig8-latency",
            "Latency of a window's result at the edge and in the cloud, p50, p95 and p99, for each"
            " rate",
            _draw_latency,
        ),
    ],
    root=True,
    differences=_differences,
)
