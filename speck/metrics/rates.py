"""Rates between the last two samples of a job's tasks, held in memory, for `GET /rates`. Pure.

`speck.analyzer.rates` computes rates over a window of the stored dataset instead, in Spark, where
speck's own code does not run. Both divide the growth of the same counters (`TIMES`, `COUNTS` of
`speck.model.measurement`) by the time that the task itself reports, add up subtasks, and leave a
sum unknown if a part of it is: `tests/services/analyzer/test_rates_agree.py` compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from speck.clock import rfc3339
from speck.metrics.rows import Sample
from speck.model.measurement import TaskMeasure
from speck.model.values import JsonObject

Pair = tuple[Sample | None, Sample]


def compute_job_metrics(pairs: Sequence[Pair]) -> JsonObject:
    """`{at, seconds, in_rate, out_rate (records/s), busy, idle, back_pressured (0 to 1, of the
    busiest subtask), records_in, records_out, bytes_in, bytes_out
    (totals of sources and sinks), restarts, checkpoint, tasks}`; None for unknown values."""
    tasks = [
        _rate_task(pair) for pair in sorted(pairs, key=lambda p: (p[1].task.vertex, _subtask_of(p)))
    ]
    newest = max((pair[1] for pair in pairs), key=lambda sample: sample.at, default=None)
    subtasks = {sample.task.vertex: sample.task.subtasks for _, sample in pairs}
    sources, sinks = (
        _select_complete(tasks, subtasks, which) for which in ("is_source", "is_sink")
    )
    busiest = max(tasks, key=lambda task: _or_zero(task["busy"]), default=None)
    shares = {
        name: busiest[name] if busiest else None for name in ("busy", "idle", "back_pressured")
    }
    return {
        "at": rfc3339(newest.at) if newest else None,
        "seconds": max((t["seconds"] for t in tasks if t["seconds"] is not None), default=None),
        "in_rate": _sum_up(sources, "in_rate"),
        "out_rate": _sum_up(sinks, "out_rate"),
        **shares,
        "records_in": _sum_counts(sources, "records_in"),
        "records_out": _sum_counts(sinks, "records_out"),
        "bytes_in": _sum_counts(sources, "bytes_in"),
        "bytes_out": _sum_counts(sinks, "bytes_out"),
        "restarts": newest.job.restarts if newest else None,
        "checkpoint": {
            "id": newest.job.checkpoint_id if newest else None,
            "bytes": newest.job.checkpoint_bytes if newest else None,
            "ms": newest.job.checkpoint_ms if newest else None,
        },
        "tasks": tasks,
    }


def _rate_task(pair: Pair) -> JsonObject:
    older, newer = pair
    task = newer.task
    elapsed_s = _compute_elapsed_s(older, newer)
    before = older.task if older is not None else None
    return {
        "vertex": task.vertex,
        "name": task.name,
        "subtask": task.subtask,
        "is_source": task.is_source,
        "is_sink": task.is_sink,
        "seconds": elapsed_s,
        "in_rate": _compute_rate(before, task, "records_in", elapsed_s),
        "out_rate": _compute_rate(before, task, "records_out", elapsed_s),
        "busy": _compute_share(before, task, "busy_ms", elapsed_s),
        "idle": _compute_share(before, task, "idle_ms", elapsed_s),
        "back_pressured": _compute_share(before, task, "back_pressured_ms", elapsed_s),
        "records_in": task.records_in,
        "records_out": task.records_out,
        "bytes_in": task.bytes_in,
        "bytes_out": task.bytes_out,
    }


def _compute_elapsed_s(older: Sample | None, newer: Sample) -> float | None:
    """Seconds between two samples by the task's own clock, or by the polls if it has none.

    None after a restart, since counters begin anew.
    """
    if older is None:
        return None
    before, after = older.task.lived_ms, newer.task.lived_ms
    if before is not None and after is not None:
        return (after - before) / 1000 if after > before else None
    has_begun = (before is None) != (after is None)  # a new task does not report its times yet
    if has_begun or older.job.restarts != newer.job.restarts:
        return None
    return (newer.at - older.at).total_seconds()


def _compute_rate(
    before: TaskMeasure | None,
    after: TaskMeasure,
    counter: str,
    elapsed_s: float | None,
) -> float | None:
    """Growth per second; None if it is unknown, or the counter fell."""
    old = getattr(before, counter) if before is not None else None
    new = getattr(after, counter)
    if not elapsed_s or old is None or new is None or new < old:
        return None
    return float((new - old) / elapsed_s)


def _compute_share(
    before: TaskMeasure | None, after: TaskMeasure, counter: str, elapsed_s: float | None
) -> float | None:
    """Share of the task's time, at most 1: the counter (ms) may be read just after the clock."""
    rate = _compute_rate(before, after, counter, elapsed_s)
    return None if rate is None else min(1.0, rate / 1000)


def _select_complete(
    tasks: Sequence[JsonObject], subtasks: Mapping[str, int], flag: str
) -> list[JsonObject]:
    """The tasks with this flag; none if one of their subtasks did not report."""
    chosen = [task for task in tasks if task[flag]]
    counts = Counter(task["vertex"] for task in chosen)
    return chosen if all(counts[vertex] == subtasks[vertex] for vertex in counts) else []


def _sum_up(tasks: Sequence[JsonObject], name: str) -> float | None:
    """The sum; None if a value is unknown or there are no tasks."""
    values = [task[name] for task in tasks]
    if not values or any(value is None for value in values):
        return None
    return float(sum(values))


def _sum_counts(tasks: Sequence[JsonObject], name: str) -> int | None:
    total = _sum_up(tasks, name)
    return None if total is None else int(total)


def _or_zero(value: float | None) -> float:
    return value if value is not None else 0.0


def _subtask_of(pair: Pair) -> int:
    return pair[1].task.subtask
