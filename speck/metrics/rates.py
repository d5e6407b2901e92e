"""Rates between the last two samples of a job's tasks, held in memory, for `GET /rates`. Pure.

`speck.analyzer.rates` computes rates over a window of the stored dataset instead, in Spark, where
nothing of speck runs. Both divide the growth of the same counters (`TIMES`, `COUNTS` of
`speck.model.measurement`) by the time that the task itself reports, add up subtasks, and know no
sum of which a part is not known: `tests/services/analyzer/test_rates_agree.py` compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from speck.clock import rfc3339
from speck.metrics.rows import Sample
from speck.model.measurement import TaskMeasure
from speck.model.values import JsonObject

Pair = tuple[Sample | None, Sample]


def job_metrics(pairs: Sequence[Pair]) -> JsonObject:
    """`{at, seconds, in_rate, out_rate (records/s), busy, idle, back_pressured (0 to 1, of the
    busiest subtask), records_in, records_out, bytes_in, bytes_out
    (totals of sources and sinks), restarts, checkpoint, tasks}`; None where nothing is known."""
    tasks = [_task(pair) for pair in sorted(pairs, key=lambda p: (p[1].task.vertex, _subtask(p)))]
    newest = max((pair[1] for pair in pairs), key=lambda sample: sample.at, default=None)
    subtasks = {sample.task.vertex: sample.task.subtasks for _, sample in pairs}
    sources, sinks = (_whole(tasks, subtasks, which) for which in ("is_source", "is_sink"))
    busiest = max(tasks, key=lambda task: _or_zero(task["busy"]), default=None)
    shares = {
        name: busiest[name] if busiest else None for name in ("busy", "idle", "back_pressured")
    }
    return {
        "at": rfc3339(newest.at) if newest else None,
        "seconds": max((t["seconds"] for t in tasks if t["seconds"] is not None), default=None),
        "in_rate": _total(sources, "in_rate"),
        "out_rate": _total(sinks, "out_rate"),
        **shares,
        "records_in": _count(sources, "records_in"),
        "records_out": _count(sinks, "records_out"),
        "bytes_in": _count(sources, "bytes_in"),
        "bytes_out": _count(sinks, "bytes_out"),
        "restarts": newest.job.restarts if newest else None,
        "checkpoint": {
            "id": newest.job.checkpoint_id if newest else None,
            "bytes": newest.job.checkpoint_bytes if newest else None,
            "ms": newest.job.checkpoint_ms if newest else None,
        },
        "tasks": tasks,
    }


def _task(pair: Pair) -> JsonObject:
    older, newer = pair
    task = newer.task
    elapsed = _elapsed_s(older, newer)
    before = older.task if older is not None else None
    return {
        "vertex": task.vertex,
        "name": task.name,
        "subtask": task.subtask,
        "is_source": task.is_source,
        "is_sink": task.is_sink,
        "seconds": elapsed,
        "in_rate": _rate(before, task, "records_in", elapsed),
        "out_rate": _rate(before, task, "records_out", elapsed),
        "busy": _share(before, task, "busy_ms", elapsed),
        "idle": _share(before, task, "idle_ms", elapsed),
        "back_pressured": _share(before, task, "back_pressured_ms", elapsed),
        "records_in": task.records_in,
        "records_out": task.records_out,
        "bytes_in": task.bytes_in,
        "bytes_out": task.bytes_out,
    }


def _elapsed_s(older: Sample | None, newer: Sample) -> float | None:
    """Between two samples, by the task's own time; by the looks where it tells none. None
    after a restart: its counters began anew."""
    if older is None:
        return None
    before, after = older.task.lived_ms, newer.task.lived_ms
    if before is not None and after is not None:
        return (after - before) / 1000 if after > before else None
    beginning = (before is None) != (after is None)  # a task that begins is not told as busy
    if beginning or older.job.restarts != newer.job.restarts:
        return None
    return (newer.at - older.at).total_seconds()


def _rate(
    before: TaskMeasure | None,
    after: TaskMeasure,
    counter: str,
    elapsed_s: float | None,
) -> float | None:
    """Growth a second; None when it is not known, or the counter fell."""
    old = getattr(before, counter) if before is not None else None
    new = getattr(after, counter)
    if not elapsed_s or old is None or new is None or new < old:
        return None
    return float((new - old) / elapsed_s)


def _share(
    before: TaskMeasure | None, after: TaskMeasure, counter: str, elapsed_s: float | None
) -> float | None:
    """Of its time, 0 to 1: the counter (ms) may have been read a moment after the clock."""
    rate = _rate(before, after, counter, elapsed_s)
    return None if rate is None else min(1.0, rate / 1000)


def _whole(
    tasks: Sequence[JsonObject], subtasks: Mapping[str, int], which: str
) -> list[JsonObject]:
    """The tasks that are `which`; none when a subtask of theirs did not tell."""
    chosen = [task for task in tasks if task[which]]
    told = Counter(task["vertex"] for task in chosen)
    return chosen if all(told[vertex] == subtasks[vertex] for vertex in told) else []


def _total(tasks: Sequence[JsonObject], name: str) -> float | None:
    """The sum; None when one of them is not known, or there is none."""
    values = [task[name] for task in tasks]
    if not values or any(value is None for value in values):
        return None
    return float(sum(values))


def _count(tasks: Sequence[JsonObject], name: str) -> int | None:
    total = _total(tasks, name)
    return None if total is None else int(total)


def _or_zero(value: float | None) -> float:
    return value if value is not None else 0.0


def _subtask(pair: Pair) -> int:
    return pair[1].task.subtask
