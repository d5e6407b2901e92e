"""Makes the records of an analysis of rows, and writes it as JSON. Unknown values and non-finite
numbers are null."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from speck.metrics.dataset.schema import ALONE
from speck.model.analysis_result import (
    AnalysedJob,
    AnalysedSite,
    AnalysisResult,
    JobEnd,
    SubtaskRate,
)
from speck.model.shown import render
from speck.model.values import JsonObject

_ENDS = ("source_site", "source_topic", "sink_site", "sink_topic")
INTERNAL = (
    "bytes_in_rate",
    "bytes_out_rate",
    "tier",
    "state_why",
    "source_is_input",
    *_ENDS,
)
"""Fields of JOB_FIELDS that the analysis does not show."""


def make_jobs(rows: Iterable[JsonObject]) -> tuple[AnalysedJob, ...]:
    """Rows of `describe_jobs` as the analysis's `jobs`."""
    ordered = sorted(rows, key=lambda row: (row["composition"] or "", row["job_name"]))
    return tuple(map(_make_job, ordered))


def _make_job(row: JsonObject) -> AnalysedJob:
    tasks = row["tasks"]
    made = {
        **{name: value for name, value in row.items() if name not in INTERNAL},
        "why": tuple(row["why"]),
        "rate_why": tuple(row["rate_why"]),
        "tasks": None if tasks is None else tuple(SubtaskRate(**task) for task in tasks),
        "source": JobEnd(row["source_site"], row["source_topic"]),
        "sink": JobEnd(row["sink_site"], row["sink_topic"]),
    }
    return AnalysedJob(**made)


def add_loads(sites: Iterable[JsonObject], jobs: Iterable[JsonObject]) -> list[JsonObject]:
    """Sites as `sites.add_use` makes them, with `load`: reference core-seconds per second that jobs
    of all compositions use (rows of `describe_jobs`)."""
    loads: dict[str | None, float] = {}
    for job in jobs:
        cost, rate = job["reference_core_s_per_record"], job["in_rate"]
        if not job["ended"] and cost is not None and rate is not None:
            loads[job["site"]] = loads.get(job["site"], 0.0) + cost * rate
    return [{**site, "load": loads.get(site["site"], 0.0)} for site in sites]


def make_sites(rows: Iterable[JsonObject]) -> tuple[AnalysedSite, ...]:
    """Sites as `sites.add_use` makes them with their loads as the analysis's `sites`."""
    return tuple(
        AnalysedSite(
            name=row["site"],
            **{name: value for name, value in row.items() if name not in ("site", "last_at")},
        )
        for row in sorted(rows, key=lambda row: row["site"])
        if row["last_at"]
    )


def collect_rows(frame: DataFrame) -> list[JsonObject]:
    """Compute a frame; its rows as plain values, times as aware datetimes. Non-finite numbers are
    None, and so is the composition of jobs posted alone."""
    table = frame.toArrow()
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_finite(column), column, None)
        elif field.name == "composition":
            column = pc.if_else(pc.equal(column, ALONE), None, column)
        table = table.set_column(place, field.name, column)
    rows: list[JsonObject] = table.to_pylist()
    return rows


def format_time(at: datetime) -> str:
    """Format as RFC 3339, UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(analysis: AnalysisResult, out: Path) -> None:
    """Write the analysis atomically: a reader of `out` finds the old one or the new one."""
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    unfinished.write_text(
        json.dumps(render(analysis), indent=1, ensure_ascii=False, allow_nan=False)
    )
    unfinished.replace(out)
