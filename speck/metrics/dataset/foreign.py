"""Traces of other collectors: Flink's gauges per second -> the totals of `tasks`.

Such a trace has one row for each subtask and look, with the names that Flink gives. A total is
the sum of gauge x time since the row before: an approximation, since the gauges look back over
seconds and not over exactly that time. Where the time before a row is not known (its first row,
a gap, a gauge that was not told) the totals begin anew under another `engine_job_id`: what was
not seen is not counted as nothing.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from speck.errors import InvalidError
from speck.metrics.dataset.parsing import Source, a_number, a_text, a_time, a_whole, value
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
"""What Flink called it before 1.13."""

KEY = ("job", "vertex", "subtask", "timestamp")
GAP_S = 60.0
"""A row this long after the one before, and three times longer than is usual, follows a gap."""

_TEXTS = ("site", "composition")


def is_foreign(header: Sequence[str]) -> bool:
    """Whether these are the columns of such a trace."""
    return {"job", "timestamp"} <= set(header)


def ignored(header: Sequence[str]) -> list[str]:
    """The columns that are not taken over."""
    return sorted(set(header) - {*KEY, *GAUGES, *OLD_NAMES, *_TEXTS})


@dataclass(frozen=True, slots=True)
class _Sample:
    """One row of a trace."""

    at: datetime
    gauges: dict[str, float]


def tasks_of(source: Source) -> pa.Table:
    """The trace as rows of `tasks` with their composition. Raises InvalidError."""
    missing = [name for name in KEY if name not in source.header()]
    if missing:
        raise InvalidError(
            f"cannot import {source.name}: it has no column {missing[0]}; a trace of gauges has"
            f" {', '.join(KEY)}, and any of {', '.join(GAUGES)}"
        )
    try:
        samples = _samples(source)
    except (UnicodeDecodeError, pa.ArrowException, OSError) as error:
        raise source.unreadable(str(error).partition("\n")[0]) from error
    source.check()
    vertices: dict[tuple[str, ...], set[str]] = {}
    subtasks: dict[tuple[str, ...], int] = {}
    for *job, vertex, subtask in samples:
        vertices.setdefault(tuple(job), set()).add(vertex)
        whole = (*job, vertex)
        subtasks[whole] = max(subtasks.get(whole, 0), subtask + 1)
    rows = []
    for key in sorted(samples):
        *job, vertex, _ = key
        # of several tasks, a trace does not tell which hold the ends
        end = True if len(vertices[tuple(job)]) == 1 else None
        told = {"subtasks": subtasks[*job, vertex], "is_source": end, "is_sink": end}
        rows += [row | told for row in _totals(key, samples[key])]
    schema = TASKS.schema.append(pa.field("composition", pa.string(), nullable=False))
    return pa.Table.from_pylist(rows, schema)


_Key = tuple[str, str, str, str, int]


def _samples(source: Source) -> dict[_Key, list[_Sample]]:
    """By composition, site, job, vertex and subtask."""
    found: dict[_Key, list[_Sample]] = {}
    whole = a_whole(2**31)
    for line, row in source.rows():
        at = value(source, line, "timestamp", row.get("timestamp"), a_time, False)
        job = value(source, line, "job", row.get("job"), a_text, False)
        vertex = value(source, line, "vertex", row.get("vertex"), a_text, False)
        subtask = value(source, line, "subtask", row.get("subtask"), whole, False)
        site = value(source, line, "site", row.get("site"), a_text)
        composition = value(source, line, "composition", row.get("composition"), _name)
        gauges = {}
        for name in (*GAUGES, *OLD_NAMES):
            told = value(source, line, name, row.get(name), a_number)
            if told is not None:
                gauges[GAUGES[OLD_NAMES.get(name, name)]] = told
        if None not in (at, job, vertex, subtask):
            key = (composition or ALONE, site or "", job, vertex, subtask)
            found.setdefault(key, []).append(_Sample(at, gauges))
    return found


def _name(given: Any) -> str:
    text = a_text(given)
    if text != ALONE and not is_name(text):
        raise ValueError(f"write a composition's name, or {ALONE}")
    return text


def _totals(key: _Key, samples: list[_Sample]) -> Iterator[dict[str, Any]]:
    composition, site, job, vertex, subtask = key
    ordered = sorted({sample.at: sample for sample in reversed(samples)}.items())
    told = sorted({column for _, sample in ordered for column in sample.gauges})
    longest = _longest([at for at, _ in ordered])
    totals: dict[str, float] = {}
    before: datetime | None = None
    for at, sample in ordered:
        known = all(not math.isnan(sample.gauges.get(column, math.nan)) for column in told)
        if before is None or not known or at - before > longest:
            # milliseconds: two files of one trace that begin apart stay apart
            incarnation = f"{job}@{int(at.timestamp() * 1000)}"
            totals = dict.fromkeys(told, 0.0)
        else:
            seconds = (at - before).total_seconds()
            for column in told:
                totals[column] += sample.gauges[column] * seconds
        before = at
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


def _longest(times: list[datetime]) -> timedelta:
    """The time between two rows past which there is a gap."""
    apart = [(b - a).total_seconds() for a, b in itertools.pairwise(times)]
    usual = statistics.median(apart) if apart else 0.0
    return timedelta(seconds=max(GAP_S, 3 * usual))
