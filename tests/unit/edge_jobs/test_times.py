"""What counts as work, as waiting, and as being held back in a program of the Python client."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import speck_link.job
from speck_link import leftovers
from speck_link.job import Job, Program

WORDS = (
    *("--job-name", "J", "--client-id", "speck-1-J-a", "--sink-readers", "none"),
    *("--source-broker", "tcp://a", "--source-topic", "in"),
    *("--sink-broker", "tcp://b", "--sink-topic", "out"),
)


class Nothing(Program):
    def process(self, record: bytes) -> Iterable[bytes]:
        return ()


class Clock:
    """Seconds that pass in calls: 2 in each `select`, 3 in each `read`, 4 in each `write`."""

    now = 0.0
    is_closed = is_full = False

    def perf_counter(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def select(self, reads: list[Any], writes: list[Any], *_: Any) -> Any:
        self.now += 2
        if self.is_closed:
            raise ValueError("file descriptor cannot be a negative integer (-1)")
        return reads, writes, []

    def fileno(self) -> int:
        return 1

    def wants_write(self) -> bool:
        return True

    def read(self) -> None:
        self.now += 3

    def write(self) -> None:
        self.now += 4


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speck_link.job, "time", clock)
    monkeypatch.setattr(leftovers, "time", clock)
    monkeypatch.setattr(leftovers, "select", clock)
    return clock


@pytest.fixture
def job(clock: Clock, tmp_path: Path) -> Job:
    return Job(Nothing(), WORDS, tmp_path)


def times(job: Job) -> tuple[float, float, float]:
    return job._busy_s, job._idle_s, job._held_s


def test_reading_and_writing_is_work_and_only_the_wait_before_is_none(
    job: Job, clock: Clock
) -> None:
    end = cast(Any, clock)
    assert leftovers.wait((end,), 1.0) == 2
    assert clock.now == 9
    job._count_time(9.0, 2.0)
    assert times(job) == (7.0, 2.0, 0.0)
    clock.is_closed = True
    assert leftovers.wait((end,), 1.0) == 2


def test_a_wait_for_the_sinks_broker_is_back_pressure_if_it_holds_up_the_input(job: Job) -> None:
    job._port._held_bytes = 1 << 30
    job._count_time(5.0, 4.0)
    assert times(job) == (1.0, 0.0, 4.0)
    job._port._held_bytes = 0
    job._flushing = 0.0  # a checkpoint waits until the broker has everything
    job._count_time(1.0, 1.0)
    assert times(job) == (1.0, 1.0, 4.0), "without input nothing is held up"
    cast(Any, job._source.reader)._waiting.append(SimpleNamespace())
    job._count_time(1.0, 1.0)
    assert times(job) == (1.0, 1.0, 5.0)
    job._flushing = None
    job._count_time(1.0, 1.0)
    assert times(job) == (1.0, 2.0, 5.0)
