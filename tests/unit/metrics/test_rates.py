"""Rates between two samples of a job's tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from speck.metrics.rates import compute_job_rates
from speck.metrics.rows import Sample
from speck.model.measurement import JobMeasure, TaskMeasure

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def sample(
    seconds: float,
    restarts: int = 0,
    *,
    vertex: str = "v",
    source: bool = True,
    sink: bool = True,
    **counters: Any,
) -> Sample:
    task = TaskMeasure(vertex, "x", 0, 1, source, sink, **counters)
    job = JobMeasure("j", (task,), restarts=restarts, checkpoint_id=4)
    return Sample(AT + timedelta(seconds=seconds), job, task)


def times(busy: float, idle: float, back_pressured: float = 0.0) -> dict[str, float]:
    return {"busy_ms": busy, "idle_ms": idle, "back_pressured_ms": back_pressured}


def test_time_is_that_of_the_task_not_that_of_the_looks() -> None:
    """The looks were 5 s apart, the values that the engine had at hand 4 s."""
    before = sample(0, records_in=100, records_out=50, **times(1000, 2000, 1000))
    after = sample(5, records_in=500, records_out=250, **times(3000, 3000, 2000))
    metrics = compute_job_rates([(before, after)])
    assert metrics.seconds == 4.0
    assert (metrics.in_rate, metrics.out_rate) == (100.0, 50.0)
    assert (metrics.busy, metrics.idle, metrics.back_pressured) == (0.5, 0.25, 0.25)
    assert (metrics.records_in, metrics.records_out) == (500, 250)


def test_a_source_of_which_a_subtask_did_not_tell_has_no_rate() -> None:
    """It would be too low."""
    before, after = (sample(at, records_in=n, **times(n, n)) for at, n in ((0, 0), (5, 100)))
    halves = [replace(each, task=replace(each.task, subtasks=2)) for each in (before, after)]
    metrics = compute_job_rates([(halves[0], halves[1])])
    assert (metrics.in_rate, metrics.records_in) == (None, None)
    assert metrics.tasks[0].records_in == 100
    others = [replace(each, task=replace(each.task, subtask=1)) for each in halves]
    metrics = compute_job_rates([(halves[0], halves[1]), (others[0], others[1])])
    assert (metrics.in_rate, metrics.records_in) == (1000.0, 200)


def test_where_the_engine_tells_no_busy_time_it_is_that_of_the_looks() -> None:
    before, after = (sample(at, records_in=n, idle_ms=1.0) for at, n in ((0, 10), (5, 60)))
    metrics = compute_job_rates([(before, after)])
    assert (metrics.seconds, metrics.in_rate, metrics.busy) == (5.0, 10.0, None)


@pytest.mark.parametrize("counters", [times(10, 20), {}])
def test_after_a_restart_nothing_is_made_up(counters: dict[str, float]) -> None:
    known = times(1000, 2000) if counters else {}
    before = sample(0, records_in=1000, **known)
    after = sample(5, restarts=1, records_in=1500, **counters)
    metrics = compute_job_rates([(before, after)])
    assert (metrics.in_rate, metrics.busy, metrics.seconds) == (None, None, None)
    assert (metrics.records_in, metrics.restarts) == (1500, 1)


def test_a_task_that_begins_has_no_rate_yet() -> None:
    """Flink tells its busy time as NaN until it runs."""
    before = sample(0, records_in=0, idle_ms=10.0, back_pressured_ms=0.0)
    after = sample(5, records_in=10, **times(20, 480))
    assert compute_job_rates([(before, after)]).in_rate is None


def test_no_task_is_idle_for_longer_than_all_the_time() -> None:
    metrics = compute_job_rates([(sample(0, idle_ms=0.0), sample(1, idle_ms=1030.0))])
    assert metrics.idle == 1.0


def test_a_counter_that_fell_gives_no_rate() -> None:
    before = sample(0, records_in=1000, records_out=5, **times(0, 0))
    after = sample(5, records_in=10, records_out=10, **times(0, 5000))
    metrics = compute_job_rates([(before, after)])
    assert (metrics.in_rate, metrics.out_rate) == (None, 1.0)


def test_one_sample_is_no_rate_and_none_is_nothing() -> None:
    metrics = compute_job_rates([(None, sample(0, records_in=5, **times(1, 2)))])
    assert (metrics.in_rate, metrics.busy, metrics.records_in) == (None, None, 5)
    metrics = compute_job_rates([])
    assert (metrics.at, metrics.in_rate, metrics.busy, metrics.tasks) == (None,) * 3 + ((),)


def test_a_job_takes_in_at_its_sources_gives_out_at_its_sinks_and_is_as_busy_as_its_busiest() -> (
    None
):
    reading = [
        sample(at, vertex="a", sink=False, records_in=n, records_out=n, **times(busy, 5000 - busy))
        for at, n, busy in ((0, 0, 0), (5, 100, 500))
    ]
    writing = [
        sample(at, vertex="b", source=False, records_in=n, records_out=out, **times(out, idle))
        for at, n, out, idle in ((0, 0, 0, 0), (5, 100, 4000, 1000))
    ]
    # the first task has lived 5 s, but its times say 0 in the first sample's 5000
    metrics = compute_job_rates([(writing[0], writing[1]), (reading[0], reading[1])])
    assert [task.vertex for task in metrics.tasks] == ["a", "b"]
    assert metrics.out_rate == 800.0
    assert metrics.busy == 0.8
    assert metrics.in_rate is None  # its time stood still: an answer that cannot be true


def test_a_sum_is_not_known_when_a_part_is_not() -> None:
    one = (sample(0, vertex="a", records_in=0, **times(0, 0)),
           sample(5, vertex="a", records_in=10, **times(0, 5000)))  # fmt: skip
    other = (None, sample(5, vertex="b", records_in=10, **times(0, 5000)))
    assert compute_job_rates([one, other]).in_rate is None
