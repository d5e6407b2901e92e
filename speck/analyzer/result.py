"""Renders frames as the analysis in JSON. Unknown values and non-finite numbers are null."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from speck.metrics.dataset.schema import ALONE
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
"""Columns of JOBS that the analysis does not show."""


def render_jobs(rows: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of JOBS as the analysis's `jobs`."""
    rendered = []
    for row in sorted(rows, key=lambda row: (row["composition"] or "", row["job_name"])):
        ends = {
            end: {"site": row[f"{end}_site"], "topic": row[f"{end}_topic"]}
            for end in ("source", "sink")
        }
        rendered.append({k: v for k, v in row.items() if k not in INTERNAL} | ends)
    return rendered


def add_loads(sites: Iterable[JsonObject], jobs: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of SITES_USED with `load`: reference core-seconds per second that jobs of all
    compositions use (rows of JOBS)."""
    loads: dict[str | None, float] = {}
    for job in jobs:
        cost, rate = job["reference_core_s_per_record"], job["in_rate"]
        if not job["ended"] and cost is not None and rate is not None:
            loads[job["site"]] = loads.get(job["site"], 0.0) + cost * rate
    return [{**site, "load": loads.get(site["site"], 0.0)} for site in sites]


def render_sites(rows: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of SITES_USED with their loads as the analysis's `sites`."""
    return [
        {"name": row["site"], **{k: v for k, v in row.items() if k not in ("site", "last_at")}}
        for row in sorted(rows, key=lambda row: row["site"])
        if row["last_at"]
    ]


def render_rows(frame: DataFrame) -> list[JsonObject]:
    """Render all rows as JSON values."""
    return [_to_plain(row.asDict(recursive=True)) for row in frame.collect()]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {name: _to_plain(each) for name, each in value.items()}
        if plain.get("composition") == ALONE:
            plain["composition"] = None
        return plain
    if isinstance(value, list):
        return [_to_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def format_time(at: datetime) -> str:
    """Format as RFC 3339, UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(analysis: JsonObject, out: Path) -> None:
    """Write the analysis atomically: a reader of `out` finds the old one or the new one."""
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(analysis, indent=1, ensure_ascii=False, allow_nan=False))
    unfinished.replace(out)
