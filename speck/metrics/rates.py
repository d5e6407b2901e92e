"""Rates between the last two samples of a job's tasks, held in memory, for `GET /rates`. Pure.

`speck.analyzer.rates` computes rates over a window of the stored dataset instead, in Spark, where
speck's own code does not run. Both divide the growth of the same counters (`TIMES`, `COUNTS` of
`speck.model.measurement`) by the time that the task itself reports, add up subtasks, and leave a
sum unknown if a part of it is: `tests/services/analyzer/test_rates_agree.py` compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from speck.clock import rfc3339
from speck.metrics.rows import Sample
from speck.model.job_rates import CheckpointSize, JobRates, TaskRates
from speck.model.measurement import TaskMeasure

Pair = tuple[Sample | None, Sample]
_Number = TypeVar("_Number", int, float)


def compute_job_rates(pairs: Sequence[Pair]) -> JobRates:
    """The rates of a job whose tasks have these samples, without its lag."""
    tasks = [
        _rate_task(pair) for pair in sorted(pairs, key=lambda p: (p[1].task.vertex, _subtask_of(p)))
    ]
    newest = max((pair[1] for pair in pairs), key=lambda sample: sample.at, default=None)
    subtasks = {sample.task.vertex: sample.task.subtasks for _, sample in pairs}
    sources = _select_complete([task for task in tasks if task.is_source], subtasks)
    sinks = _select_complete([task for task in tasks if task.is_sink], subtasks)
    busiest = max(tasks, key=lambda task: task.busy or 0.0, default=None)
    return JobRates(
        at=rfc3339(newest.at) if newest else None,
        seconds=max((each.seconds for each in tasks if each.seconds is not None), default=None),
        in_rate=_sum_up(each.in_rate for each in sources),
        out_rate=_sum_up(each.out_rate for each in sinks),
        busy=busiest.busy if busiest else None,
        idle=busiest.idle if busiest else None,
        back_pressured=busiest.back_pressured if busiest else None,
        records_in=_sum_up(each.records_in for each in sources),
        records_out=_sum_up(each.records_out for each in sinks),
        bytes_in=_sum_up(each.bytes_in for each in sources),
        bytes_out=_sum_up(each.bytes_out for each in sinks),
        restarts=newest.job.restarts if newest else None,
        checkpoint=CheckpointSize(
            newest.job.checkpoint_id if newest else None,
            newest.job.checkpoint_bytes if newest else None,
            newest.job.checkpoint_ms if newest else None,
        ),
        tasks=tuple(tasks),
    )


def _rate_task(pair: Pair) -> TaskRates:
    older, newer = pair
    task = newer.task
    elapsed_s = _compute_elapsed_s(older, newer)
    before = older.task if older is not None else None
    return TaskRates(
        vertex=task.vertex,
        name=task.name,
        subtask=task.subtask,
        is_source=task.is_source,
        is_sink=task.is_sink,
        seconds=elapsed_s,
        in_rate=_compute_rate(before, task, "records_in", elapsed_s),
        out_rate=_compute_rate(before, task, "records_out", elapsed_s),
        busy=_compute_share(before, task, "busy_ms", elapsed_s),
        idle=_compute_share(before, task, "idle_ms", elapsed_s),
        back_pressured=_compute_share(before, task, "back_pressured_ms", elapsed_s),
        records_in=task.records_in,
        records_out=task.records_out,
        bytes_in=task.bytes_in,
        bytes_out=task.bytes_out,
    )


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
    tasks: Sequence[TaskRates], subtasks: Mapping[str, int]
) -> Sequence[TaskRates]:
    """These tasks; none if one of their subtasks did not report."""
    counts = Counter(task.vertex for task in tasks)
    return tasks if all(counts[vertex] == subtasks[vertex] for vertex in counts) else ()


def _sum_up(values: Iterable[_Number | None]) -> _Number | None:
    """The sum; None if a value is unknown or there are none."""
    known = list(values)
    if not known or None in known:
        return None
    return sum(each for each in known if each is not None)


def _subtask_of(pair: Pair) -> int:
    return pair[1].task.subtask
