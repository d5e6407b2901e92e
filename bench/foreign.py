"""Traces of other collectors -> rows of the metrics dataset: `python -m bench.foreign TRACE ROWS`.

Writes a Parquet file for `speck metrics import`, from Flink's gauges per second.

Such a trace has one row per subtask and poll, with Flink's own metric names. A total is the sum of
gauge x time since the previous row. That is an approximation, since a gauge averages over some
seconds and not over exactly that time. Where the time before a row is unknown (the first row, a
gap, a missing gauge) the totals start again under another `engine_job_id`, so that a gap does not
count as idle time.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import InvalidError
from speck.metrics.dataset.parsing import (
    Source,
    make_int_parser,
    parse_number,
    parse_text,
    parse_time,
    parse_value,
)
from speck.metrics.dataset.schema import ALONE, TASKS
from speck.model.values import is_name

GAUGES = {
    "busyTimeMsPerSecond": "busy_ms",
    "idleTimeMsPerSecond": "idle_ms",
    "backPressuredTimeMsPerSecond": "back_pressured_ms",
    "numRecordsInPerSecond": "records_in",
    "numRecordsOutPerSecond": "records_out",
}
OLD_NAMES = {"backPressureTimeMsPerSecond": "backPressuredTimeMsPerSecond"}
"""Flink's name before 1.13 -> its name since."""

KEY = ("job", "vertex", "subtask", "timestamp")
GAP_S = 60.0
"""There is a gap between two rows at least this far apart, and over three usual intervals."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """One row of a trace."""

    at: datetime
    gauges: dict[str, float]


def convert(trace: Path, rows: Path) -> None:
    """Write a trace (`.csv`, `.jsonl` or `.parquet`) as rows in Parquet. Raises InvalidError."""
    pq.write_table(tasks_of(Source(trace, trace.name, trace.suffix[1:])), rows)


def tasks_of(source: Source) -> pa.Table:
    """The trace as rows of `tasks` with their composition. Raises InvalidError."""
    missing = [name for name in KEY if name not in source.read_header()]
    if missing:
        raise InvalidError(
            f"cannot convert {source.name}: it has no column {missing[0]}; a trace of gauges has"
            f" {', '.join(KEY)}, and any of {', '.join(GAUGES)}"
        )
    try:
        samples = _read_samples(source)
    except (UnicodeDecodeError, pa.ArrowException, OSError) as error:
        raise source.make_error(str(error).partition("\n")[0]) from error
    source.check()
    vertices: dict[tuple[str, ...], set[str]] = {}
    subtasks: dict[tuple[str, ...], int] = {}
    for *job, vertex, subtask in samples:
        vertices.setdefault(tuple(job), set()).add(vertex)
        task = (*job, vertex)
        subtasks[task] = max(subtasks.get(task, 0), subtask + 1)
    rows = []
    for key in sorted(samples):
        *job, vertex, _ = key
        # a trace of several tasks does not say which of them hold source and sink
        end = True if len(vertices[tuple(job)]) == 1 else None
        columns = {"subtasks": subtasks[*job, vertex], "is_source": end, "is_sink": end}
        rows += [row | columns for row in _add_up(key, samples[key])]
    schema = TASKS.schema.append(pa.field("composition", pa.string(), nullable=False))
    return pa.Table.from_pylist(rows, schema)


_Key = tuple[str, str, str, str, int]


def _read_samples(source: Source) -> dict[_Key, list[_Sample]]:
    """By composition, site, job, vertex and subtask."""
    samples: dict[_Key, list[_Sample]] = {}
    parse_subtask = make_int_parser(2**31)
    for line, row in source.read_rows():
        at = parse_value(source, line, "timestamp", row.get("timestamp"), parse_time, False)
        job = parse_value(source, line, "job", row.get("job"), parse_text, False)
        vertex = parse_value(source, line, "vertex", row.get("vertex"), parse_text, False)
        subtask = parse_value(source, line, "subtask", row.get("subtask"), parse_subtask, False)
        site = parse_value(source, line, "site", row.get("site"), parse_text)
        composition = parse_value(
            source, line, "composition", row.get("composition"), _parse_composition
        )
        gauges = {}
        for name in (*GAUGES, *OLD_NAMES):
            gauge = parse_value(source, line, name, row.get(name), parse_number)
            if gauge is not None:
                gauges[GAUGES[OLD_NAMES.get(name, name)]] = gauge
        if None not in (at, job, vertex, subtask):
            key = (composition or ALONE, site or "", job, vertex, subtask)
            samples.setdefault(key, []).append(_Sample(at, gauges))
    return samples


def _parse_composition(raw: Any) -> str:
    text = parse_text(raw)
    if text != ALONE and not is_name(text):
        raise ValueError(f"write a composition's name, or {ALONE}")
    return text


def _add_up(key: _Key, samples: list[_Sample]) -> Iterator[dict[str, Any]]:
    composition, site, job, vertex, subtask = key
    samples_by_time = sorted({sample.at: sample for sample in reversed(samples)}.items())
    columns = sorted({column for _, sample in samples_by_time for column in sample.gauges})
    gap_length = _find_gap_length([at for at, _ in samples_by_time])
    totals: dict[str, float] = {}
    previous_at: datetime | None = None
    for at, sample in samples_by_time:
        is_complete = all(not math.isnan(sample.gauges.get(column, math.nan)) for column in columns)
        if previous_at is None or not is_complete or at - previous_at > gap_length:
            # milliseconds: two files of one trace that begin apart stay apart
            incarnation = f"{job}@{int(at.timestamp() * 1000)}"
            totals = dict.fromkeys(columns, 0.0)
        else:
            seconds = (at - previous_at).total_seconds()
            for column in columns:
                totals[column] += sample.gauges[column] * seconds
        previous_at = at
        yield {
            "at": at,
            "composition": composition,
            "job_name": job,
            "site": site or None,
            "engine_job_id": incarnation,
            "vertex": vertex,
            "subtask": subtask,
            **{c: round(v) if c.startswith("records") else v for c, v in totals.items()},
        }


def _find_gap_length(times: list[datetime]) -> timedelta:
    """The time between two rows beyond which there is a gap."""
    intervals_s = [(b - a).total_seconds() for a, b in itertools.pairwise(times)]
    usual_s = statistics.median(intervals_s) if intervals_s else 0.0
    return timedelta(seconds=max(GAP_S, 3 * usual_s))


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
