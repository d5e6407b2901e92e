"""bench.edge_server: a filter at the edge against the same at the server."""

from __future__ import annotations

from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import mean, number, table

_COLORS = (style.BLUE, style.ORANGE, style.GREEN)


def _figures(result: Result) -> str:
    rows = [
        (
            it["limit"],
            it["selectivity"],
            _binds(it),
            mean(it["sink_per_s"]["edge"]),
            mean(it["sink_per_s"]["server"]),
            mean(it["ratio"]),
            it["expected_ratio"],
            "–" if it["wan_bytes_saved"] is None else f"{100 * it['wan_bytes_saved']:.0f} %",
            f"{100 * it['machine_cpu']:.0f} %",
            _left_out(it),
        )
        for it in result["summary"]["cells"]
    ]
    heads = [
        "uplink",
        ">selectivity",
        "uplink binds",
        ">edge, records/s",
        ">server, records/s",
        ">ratio",
        ">theory",
        ">WAN bytes a record saved",
        ">machine, at most",
        ">repeats left out",
    ]
    return table(heads, rows)


def _left_out(cell: Result) -> str:
    """Repeats that are in no figure, since the machine was saturated meanwhile."""
    left_out = 0 if cell["saturated"] else cell["saturated_repeats"]
    return f"{left_out} of {cell['repeats']}"


def _binds(cell: Result) -> str:
    word = {True: "yes", False: "no", None: "in part"}[cell["binds"]]
    return f"{word}, saturated" if cell["saturated"] else word


def _draw(result: Result) -> Any:
    figure, (axes,) = style.figure(height=3.6)
    cells = result["summary"]["cells"]
    limits = list(dict.fromkeys(it["limit"] for it in cells))
    shares = list(dict.fromkeys(it["selectivity"] for it in cells))
    width = 0.8 / len(shares)
    for it in cells:
        color = _COLORS[shares.index(it["selectivity"])]
        place = limits.index(it["limit"]) + (shares.index(it["selectivity"]) + 0.5) * width - 0.4
        ratio = it["ratio"]
        if ratio["mean"] is None:
            continue
        axes.bar(
            place,
            ratio["mean"],
            width * 0.92,
            color=color,
            alpha=0.35 if it["saturated"] else 1,
            hatch="//" if it["saturated"] else None,
            yerr=style.ends([ratio]),
            ecolor=style.BLACK,
            error_kw={"capsize": 4},
        )
        if it["expected_ratio"] is not None:
            ends = [place - width * 0.46, place + width * 0.46]
            axes.plot(ends, [it["expected_ratio"]] * 2, color=style.BLACK, linewidth=2)
        reach = ratio["mean"] + style.ends([ratio])[1][0]
        over = max(reach, it["expected_ratio"] or 0)
        axes.annotate(
            number(ratio["mean"]),
            (place, over),
            (0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9.5,
        )
    axes.set_xticks(range(len(limits)), [f"uplink {limit}" for limit in limits])
    axes.set_ylabel("records/s at the sink, edge to server")
    axes.grid(visible=False, axis="x")
    handles: list[Any] = [axes.bar(0, 0, color=_COLORS[n]) for n in range(len(shares))]
    handles += axes.plot([], [], color=style.BLACK, linewidth=2)
    names = [f"filter lets {100 * share:.0f} % through" for share in shares] + ["theory"]
    if any(it["saturated"] for it in cells):
        handles.append(axes.bar(0, 0, color="white", edgecolor=style.BLACK, hatch="//"))
        names.append("machine saturated")
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    style.legend_above(figure, handles, names)
    return figure


def _headline(result: Result) -> list[tuple[str, str]]:
    cells = [it for it in result["summary"]["cells"] if it["binds"] and not it["saturated"]]
    if not cells:
        return []
    most = max(cells, key=lambda it: it["ratio"]["mean"])
    return [
        (
            f"Records that a filter at the edge delivers across {most['limit']}, beside one at the"
            f" server, when {100 * most['selectivity']:.0f} % pass",
            f"{number(most['ratio']['mean'])} times as many"
            f" (theory: {number(most['expected_ratio'])})",
        )
    ]


_PUBLISHED = (
    "500 Mb/s: 3480 -> 4970; 100 Mb/s: 3480 -> 4980; 500 kb/s: 1720 -> 2430; 100 kb/s: 280 -> 400"
)


def _differences(result: Result) -> list[str]:
    ratios = "; ".join(
        f"{it['limit']}: {it['sink_per_s']['server']['mean']:.0f} ->"
        f" {it['sink_per_s']['edge']['mean']:.0f}"
        for it in result["summary"]["cells"]
        if it["selectivity"] == 0.7 and it["sink_per_s"]["edge"]["mean"] is not None
    )
    return [
        "flink-placement published records a second at the sink for a selectivity of 0.7, with the"
        f" filter at the server -> on the Pi: {_PUBLISHED}; a ratio of 1.43 each time. Measured"
        f" here: {ratios}",
        "At 100 Mb/s the published ratio is 1.43, here it is 1. Published rates are the same at 500"
        " and 100 Mb/s, so it was not the uplink that bound them but the Pi's sending: about 4970"
        " records a second left it in both placements. No sender is a limit here. A cell in which"
        " it is, by a CPU quota on the edge's broker or forwarding job, was not measured",
        "There is no complete published series for a selectivity of 0.3",
    ]


SECTION = Section(
    name="edge_server",
    title="Edge or server",
    question="What does a filter at the edge gain over the same filter at the server?",
    set_up="A stream enters at the edge's broker, what the filter lets through is read at the"
    " server, across uplinks of 100 Mb/s down to 100 kb/s. Where the uplink is the limit in both"
    " deployments, theory says 1/selectivity, where it is in neither 1.",
    target="edge-server",
    figures=_figures,
    plots=[
        Plot(
            "edge-server",
            "Records a second at the sink with the filter at the edge, over those with the filter"
            " at the server, for each uplink and selectivity, with 95 % intervals",
            _draw,
        )
    ],
    root=True,
    headline=_headline,
    differences=_differences,
)
