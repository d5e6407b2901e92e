"""bench.in_action: measured, analysed, placed and moved while data flows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import number, table


def _figures(result: Result) -> str:
    parts = []
    for name, series in result["summary"]["series"].items():
        moments, prediction = series["moments_s"], series["predicted"]
        rows = [
            (what, *(_figure(series[when], path, scale) for when in ("before", "after")), unit)
            for what, path, scale, unit in _ROWS
            if path.split(".")[0] in series["before"]
        ]
        seconds = moments["applied"] - moments["apply"]
        parts += [
            f"**{name}**: {len(prediction['moves'])} jobs moved in {number(seconds)} s,"
            f" {number(moments['apply'] - moments['analyse'])} s after the analysis was begun.",
            table(["", ">before", ">after", "unit"], rows),
        ]
    return "\n\n".join(parts)


_ROWS: Sequence[tuple[str, str, float, str]] = (
    ("records at the sink", "sink_per_s", 1, "1/s"),
    ("bytes up the uplinks", "wan_bytes_per_s", 1e-3, "kB/s"),
    ("the same, a record", "wan_bytes_per_record", 1, "B"),
    ("latency of Job 3, p95", "job3.p95_s", 1000, "ms"),
    ("latency of Job 4, p50", "job4.p50_s", 1000, "ms"),
    ("latency of Job 4, p95", "job4.p95_s", 1000, "ms"),
    ("the cloud's engine", "cloud_engine_cores", 1, "cores"),
    ("machine in use", "machine_cpu", 100, "%"),
)


def _figure(span: Result, path: str, scale: float) -> str:
    value: Any = span
    for key in path.split("."):
        value = value[key]
    return number(None if value is None else value * scale)


def _headline(result: Result) -> list[tuple[str, str]]:
    series = next(iter(result["summary"]["series"].values()))  # by hand, if that went well
    before, after = (number(series[when]["job4"]["p95_s"]) for when in ("before", "after"))
    return [
        (
            "Latency (p95) of the global result: all in the cloud, then measured, analysed and"
            " placed while data flows",
            f"{before} s, then {after} s; {number(series['lost'])} messages lost",
        )
    ]


def _draw_of(name: str) -> Any:
    def draw(result: Result) -> Any:
        series = result["summary"]["series"][name]
        figure, axes = style.rows(3, height=5.6)
        bins = series["bins"]
        at = [it["t_s"] for it in bins]
        axes[0].step(at, [it["sink_per_s"] for it in bins], where="pre", color=style.BLUE)
        axes[0].set_ylabel("records/s\nat the sink")
        for key, label, color in (
            ("latency_max_s", "most in the second", style.ORANGE),
            ("latency_p50_s", "median in the second", style.RED),
        ):
            # where no result came there is no line
            late = [math.nan if it[key] is None else it[key] for it in bins]
            axes[1].plot(at, late, ".-", color=color, linewidth=1.4, markersize=4, label=label)
        axes[1].set_yscale("log")
        style.logarithmic(axes[1].yaxis)
        axes[1].set_ylabel("latency of\nJob 4, s")
        axes[1].legend(
            loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, borderaxespad=0, fontsize=9
        )
        axes[2].step(
            at, [it["wan_bytes_per_s"] / 1000 for it in bins], where="pre", color=style.GREEN
        )
        axes[2].set_ylabel("up the uplinks,\nkB/s")
        axes[2].set_xlabel("seconds since the cameras began")
        axes[0].set_ylim(bottom=0)
        axes[2].set_ylim(bottom=0)
        _moments(axes, series["moments_s"])
        return figure

    return draw


def _moments(axes: Sequence[Any], moments: Result) -> None:
    """Lines at the moments; the time from apply to applied is shaded. Names stand on both sides
    of what would lie too close together."""
    marked = {
        "analyse": ("analyse ", "right"),
        "apply": (" apply … applied", "left"),
    }
    for each in axes:
        each.axvspan(moments["apply"], moments["applied"], color=style.PINK, alpha=0.25, lw=0)
        for name in ("analyse", "place", "apply", "applied"):
            each.axvline(moments[name], color=style.BLACK, linewidth=1, linestyle=":")
    for name, (text, side) in marked.items():
        axes[0].annotate(
            text,
            (moments[name if name == "analyse" else "applied"], 1),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=9.5,
        )


SECTION = Section(
    name="in_action",
    title="Placement in action",
    question="Does it help to measure, analyse, place and move while data flows, and is anything"
    " lost?",
    set_up="The traffic application starts all in the cloud behind uplinks of 2 Mb/s that cannot"
    " carry what the cameras send; speck measures, analyses, places, and applies while it runs."
    " What Forward sends is batched and compressed from the start, which helps once it runs at the"
    " edge. speck is told each uplink's rate and latency, and has calibrated every site; engines"
    " have no quota. The autopilot acts at its first look at 300 s, on a gain of 10 % (by default:"
    " at the second, on 20 %). One run each.",
    target="in-action",
    figures=_figures,
    plots=[
        Plot(
            "in-action",
            "Records a second at the sink, latency of Job 4 and bytes up the uplinks, second by"
            " second; dotted lines: analyse, place, apply, applied",
            _draw_of("by hand"),
        )
    ],
    root=True,
    headline=_headline,
)
