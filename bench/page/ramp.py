"""bench.ramp: an uplink that fills, under the autopilot with a forecast and without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import number, table

_NAMES = {"forecast": "with a forecast", "today": "without a forecast"}
_COLORS = {"forecast": style.BLUE, "today": style.ORANGE}


def _figures(result: Result) -> str:
    cases = result["summary"]["cases"]
    moments = table(
        ["autopilot", ">decided, s", ">applied, s", ">uplink full, s", ">most queued", ">lost"],
        [
            (
                _NAMES[name],
                *(number(case["moments_s"].get(key)) for key in ("decided", "applied", "full")),
                max(case["bins"]["queue"]),
                case["lost"],
            )
            for name, case in cases.items()
        ],
    )
    spans = table(
        [
            "autopilot",
            "when",
            ">input, records/s",
            ">uplink",
            ">latency p95, s",
            ">queued at its end",
        ],
        [row for name, case in cases.items() for row in _spans(_NAMES[name], case)],
    )
    runs = table(
        [
            "autopilot",
            ">at, s",
            ">analysis took, s",
            ">forecast, records/s",
            ">upper bound",
            "what it made of it",
        ],
        [
            (
                _NAMES[name],
                *(number(run[key]) for key in ("t_s", "analysis_s", "rate", "high")),
                run["message"],
            )
            for name, case in cases.items()
            for run in case["looks"]
        ],
    )
    reasons = [
        f"- {_NAMES[name]}: {case['reason']}" for name, case in cases.items() if "reason" in case
    ]
    return "\n\n".join(
        [
            moments,
            spans,
            "What the autopilot did:\n\n" + "\n".join(reasons),
            "Each run of the autopilot:",
            runs,
        ]
    )


def _spans(name: str, case: Result) -> list[Sequence[object]]:
    texts = {
        "before": "30 s before it decided",
        "meanwhile": "while it moved",
        "after": "the last 30 s",
    }
    return [
        (
            name,
            text,
            number(case[span]["input_per_s"]),
            f"{100 * case[span]['uplink_share']:.0f} %"
            if case[span]["uplink_share"] is not None
            else "–",
            number(case[span]["p95_s"]),
            case[span]["queue"],
        )
        for span, text in texts.items()
        if span in case
    ]


def _draw(result: Result) -> Any:
    figure, axes = style.rows(3, height=5.6)
    handles: list[Any] = []
    names = []
    for name, case in result["summary"]["cases"].items():
        bins, color = case["bins"], _COLORS[name]
        at = [second / 60 for second in bins["t_s"]]
        handles += axes[0].plot(at, [100 * it for it in bins["uplink_share"]], color=color, lw=1.2)
        axes[1].plot(at, bins["queue"], color=color)
        late = [math.nan if it is None else it for it in bins["latency_max_s"]]
        axes[2].plot(at, late, color=color, lw=1.2)
        names.append(_NAMES[name])
        for each in axes:
            for key, line in (("applied", "-"), ("full", ":")):
                if key in case["moments_s"]:
                    each.axvline(case["moments_s"][key] / 60, color=color, lw=1, linestyle=line)
    axes[0].set_ylabel("uplink in use, %")
    axes[1].set_ylabel("records queued")
    axes[2].set_ylabel("latency, s\n(most in the second)")
    axes[2].set_yscale("log")
    style.logarithmic(axes[2].yaxis)
    axes[2].set_xlabel("minutes since the ramp began; lines: moved; dotted: uplink full")
    for each in axes[:2]:
        each.set_ylim(bottom=0)
    style.legend_above(figure, handles, names)
    return figure


def _headline(result: Result) -> list[tuple[str, str]]:
    cases = result["summary"]["cases"]
    rows = []
    for name, case in cases.items():
        queued = max(case["bins"]["queue"])
        applied = case["moments_s"].get("applied")
        when = "not moved" if applied is None else f"moved after {number(applied / 60)} min"
        rows.append(f"{_NAMES[name]} {when}, {queued:,} records queued at most")
    return [("A ramp that fills an uplink in 15 min under the autopilot", "; ".join(rows))]


SECTION = Section(
    name="ramp",
    title="A ramp, foreseen",
    question="Does the forecast move jobs before an uplink is full?",
    set_up="Records enter at an edge and cross its uplink of 2 Mb/s to the cloud, where all jobs"
    " are. Their rate grows evenly, so that the uplink is full after 15 minutes. The"
    " autopilot runs every 90 s, acts when two analyses agree, and is set to move jobs"
    " only because of a limit (`min_gain` 1). With `ahead_s` 300 it plans for the upper"
    " bound of the rate that the analysis forecasts for the next five minutes, without it"
    " for the rate that was measured. The job that it can move sends compressed batches,"
    " so that less crosses, but only once it runs at the edge.",
    target="ramp",
    figures=_figures,
    plots=[
        Plot(
            "ramp",
            "Use of the uplink, records queued and latency, second by second, with a forecast and"
            " without; lines: the move was done; dotted: the uplink was full",
            _draw,
        )
    ],
    root=True,
    headline=_headline,
)
