"""Renders an analysis as tables: the ranking, the bottlenecks, and insufficient evidence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from speck.cli.output import Grid, moment
from speck.model.values import JsonObject

_FAULTS = {
    "duplicates": "duplicates",
    "resets": "counter resets",
    "gaps": "gaps",
    "nan": "without a value",
    "contended": "while the machine was overloaded",
}


def render(analysis: JsonObject) -> Iterator[object]:
    """Render an analysis as blocks for `Output.show`."""
    window, samples = analysis["window"], analysis["samples"]
    faults = ", ".join(
        f"{samples[name]} {label}" for name, label in _FAULTS.items() if samples[name]
    )
    yield (
        f"{samples['rows']} samples from {moment(window['from'])} to {moment(window['to'])}"
        + (f" ({faults})" if faults else "")
    )
    if analysis.get("ended"):
        yield _describe_run(analysis)
    for file in samples.get("damaged_files", ()):
        yield f"damaged and ignored: {file}"
    yield ""
    yield _ranking(analysis["ranking"])
    yield ""
    yield _jobs(analysis["jobs"])
    if analysis.get("forecast"):
        yield ""
        yield _forecast(analysis["forecast"])
    if analysis["bottlenecks"]:
        yield ""
        yield "Bottlenecks"
        yield from (f"  {each['kind']} {each['why']}" for each in analysis["bottlenecks"])
    unsupported = [job for job in analysis["jobs"] if job["evidence"] != "sufficient"]
    if unsupported:
        yield ""
        yield "Insufficient evidence"
        yield from (f"  {job['job_name']}: {'; '.join(job['why'])}" for job in unsupported)


def _describe_run(analysis: JsonObject) -> str:
    started, ended = (datetime.fromisoformat(analysis[name]) for name in ("started", "ended"))
    how = "Spark was warm" if analysis["warm"] else "Spark was started for it"
    return f"analysed in {(ended - started).total_seconds():.1f} s ({how})"


def _ranking(ranking: list[JsonObject]) -> Grid:
    rows = [
        (
            job["rank"],
            job["job_name"],
            _render_move(job),
            _format_number(job["wan_bytes_saved_per_s"]),
            _format_number(job["edge_core_s_per_s"], 4),
            _format_number(job["score"]),
            job["confidence"],
            "; ".join(job["against"]),
        )
        for job in ranking
    ]
    headings = (
        "rank",
        "job",
        "site",
        "saved B/s",
        "core-s/s",
        "saved B/core-s",
        "confidence",
        "why not",
    )
    return Grid(headings, rows, "Jobs for the edge", "no jobs were measured")


def _render_move(job: JsonObject) -> str:
    """The site, and the edge at which the job would save bytes if it is elsewhere."""
    site, edge = job["site"], job["edge"]
    saves = job["score"] is not None and job["score"] > 0
    return f"{site} -> {edge}" if saves and edge != site else str(site)


def _jobs(jobs: list[JsonObject]) -> Grid:
    rows = [
        (
            job["job_name"],
            job["site"],
            _format_number(job["in_rate"], 1),
            _format_number(job["out_rate"], 1),
            _format_number(job["selectivity"], 3),
            _format_number(
                None if job["core_s_per_record"] is None else 1e3 * job["core_s_per_record"], 4
            ),
            (">= " if job["lower_bound"] else "")
            + (_format_number(job["true_processing_rate"]) or "-"),
            _format_number(None if job["utilisation"] is None else 100 * job["utilisation"]),
            job["stateful"],
        )
        for job in jobs
    ]
    headings = (
        "job",
        "site",
        "in/s",
        "out/s",
        "selectivity",
        "core-ms/record",
        "true rate",
        "busy %",
        "stateful",
    )
    return Grid(headings, rows, "Jobs", "no jobs were measured")


def _forecast(forecasts: list[JsonObject]) -> Grid:
    rows = [
        (
            each["topic"],
            each["site"],
            _format_number(each["rate"], 1),
            _format_number(each["high"], 1),
            moment(each["at"]),
            each["method"],
            None if each["mape"] is None else f"{each['mape']:.0%}",
        )
        for each in forecasts
    ]
    headings = ("topic", "site", "records/s", "at most", "until", "method", "mean error")
    return Grid(headings, rows, "Forecast")


def _format_number(value: float | None, digits: int = 0) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
