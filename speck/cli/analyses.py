"""Renders an analysis as tables: the ranking with its reasons, jobs, and bottlenecks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from speck.cli.messages import clean
from speck.cli.output import Grid, moment
from speck.cli.placements import render_legend, share
from speck.model.values import JsonObject
from speck.placement.figures import describe_rate, describe_size
from speck.placement.sentences import LOW, explain_low_confidence, fold, name_jobs

_FAULTS = {
    "duplicates": "duplicates",
    "resets": "since jobs restarted",
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
    yield from render_ranking(analysis["ranking"], _explain_low_confidence(analysis))
    yield ""
    yield _jobs(analysis["jobs"])
    if analysis["jobs"]:
        yield ""
        yield from render_legend(JOBS_LEGEND)
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
        yield "Too little evidence for a cost: no command moves these jobs"
        folded = fold((job["job_name"], ["; ".join(job["why"])]) for job in unsupported)
        for why, names in folded.items():
            yield clean(f"  {name_jobs(names, len(analysis['jobs']))}: {why}")


def _describe_run(analysis: JsonObject) -> str:
    started, ended = (datetime.fromisoformat(analysis[name]) for name in ("started", "ended"))
    how = "Spark was warm" if analysis["warm"] else "Spark was started for it"
    return f"analysed in {(ended - started).total_seconds():.1f} s ({how})"


RANKING_LEGEND = {
    "rank": "the best candidate for an edge first; none for a job that is idle or was not measured",
    "edge": "where most of its input enters the system",
    "saves at its edge": "bytes between sites, compared with the cloud, if all that feeds it is at"
    " that edge, too",
    "CPU there": "CPU-seconds per second that it would use at its edge",
    "saves per CPU-second": "the two by each other: the ranking goes by it",
    "confidence": "how well the figures are supported; with low confidence the autopilot waits",
}
JOBS_LEGEND = {
    "selectivity": "records sent for each one received",
    "CPU-ms per record": "processor time of its site",
    "true rate": "records/s that it can receive at most, with its subtasks busy all the time;"
    " >=: a lower bound",
    "busy": "share of the time in which its busiest task works or waits for the processor, so a job"
    " with a small CPU time per record may still be busy on an overloaded machine",
}


def _explain_low_confidence(analysis: JsonObject) -> dict[str, str]:
    """Why the confidence in a ranked job is low, by job."""
    reports = {job["job_name"]: job for job in analysis["jobs"]}
    core_speeds = {site["name"]: site["core_speed"] for site in analysis["sites"]}
    return {
        row["job_name"]: explain_low_confidence(
            reports.get(row["job_name"], {}).get("contended"),
            reports.get(row["job_name"], {}).get("spread"),
            is_calibrated=core_speeds.get(row["edge"]) is not None,
        )
        for row in analysis["ranking"]
        if row["score"] is not None and row["confidence"] == LOW
    }


def render_ranking(
    ranking: list[JsonObject], low_confidence: Mapping[str, str] | None = None
) -> list[object]:
    """Render the ranking, the reasons for and against, why the confidence is low (by job; None: it
    is said elsewhere), and what the columns mean."""
    rows = [
        (
            job["rank"],
            job["job_name"],
            job["site"],
            job["edge"],
            None
            if job["wan_bytes_saved_per_s"] is None
            else describe_rate(job["wan_bytes_saved_per_s"]),
            _format_number(job["edge_core_s_per_s"], 4),
            None if job["score"] is None else describe_size(job["score"]),
            job["confidence"],
        )
        for job in ranking
    ]
    headings = ("rank", "job", "site", "edge", *list(RANKING_LEGEND)[2:])
    grid = Grid(headings, rows, "Jobs for the edge", "no jobs were measured")
    if not rows:
        return [grid]
    return [
        grid,
        "",
        *_list_reasons("Why", ranking, "reasons"),
        *_list_reasons("Why not", ranking, "against"),
        *_list_doubts(low_confidence or {}, len(ranking)),
        "",
        *render_legend(RANKING_LEGEND),
    ]


def _list_doubts(low_confidence: Mapping[str, str], total: int) -> list[str]:
    folded = fold((name, [why]) for name, why in low_confidence.items())
    lines = [f"  {name_jobs(jobs, total)}: {why}" for why, jobs in folded.items()]
    return ["Why low confidence", *map(clean, lines)] if lines else []


def _list_reasons(title: str, ranking: list[JsonObject], name: str) -> list[str]:
    """Each reason once, with its jobs."""
    folded = fold((job["job_name"], job[name]) for job in ranking)
    lines = [f"  {name_jobs(jobs, len(ranking))}: {why}" for why, jobs in folded.items()]
    return [title, *map(clean, lines)] if lines else []


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
            share(job["utilisation"]),
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
        "CPU-ms per record",
        "true rate",
        "busy",
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
