"""bench.collector: what measuring costs."""

from __future__ import annotations

from bench.page.result import Result
from bench.page.section import Section
from bench.page.words import key_figures, number


def _figures(result: Result) -> str:
    return key_figures(
        [
            ("jobs, sites", f"{result['jobs']}, {result['sites']}"),
            ("all sites are looked at every", f"{number(result['every_s'])} s"),
            ("share of one core for it", f"{100 * result['cpu']['collector']:.1f} %"),
            ("bytes on the wire, a look", result["wire"]["bytes_per_look"]),
            ("bytes on disk, a row of tasks", result["disk"]["tasks"]["bytes_per_row"]),
            ("a look at one site, median", f"{1000 * result['look_s']['median']:.0f} ms"),
        ]
    )


def _differences(result: Result) -> list[str]:
    wire, jobs, every_s = result["wire"]["bytes_per_look"], result["jobs"], result["every_s"]
    return [
        'The paper says that "SpecK does not generate any traffic unless the user emits requests".'
        f" Here every job costs {number(wire / jobs / every_s)} bytes a second while metrics are"
        " collected. `SPECK_METRICS_S=0` stops that, and with it analyses, placement and the"
        " autopilot; `SPECK_WATCH_S=0` stops the watch, which notices failed jobs and repairs them",
    ]


SECTION = Section(
    name="collector",
    title="Measuring",
    question="What does it cost to measure 100 jobs all the time?",
    set_up="Real Flink and Mosquitto on plain loopback; CPU of the service with the collector and"
    " without it.",
    target="collector",
    figures=_figures,
    differences=_differences,
)
