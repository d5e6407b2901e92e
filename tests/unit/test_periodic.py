"""Periodic work, by a clock whose pauses end when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from speck.clock import SystemClock
from speck.periodic import PeriodicTask
from tests.service_helpers import LIMIT_S
from tests.waiting import wait_for


class HandClock(SystemClock):
    """Pauses last until a test lets them pass; `pauses` says how long each was to be."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._passed = threading.Semaphore(0)

    def let_pass(self) -> None:
        self._passed.release()

    def wait_for(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        while not event.wait(0.001):
            if self._passed.acquire(blocking=False):
                return False
        return True


class Rounds:
    """Work that counts its rounds."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@contextmanager
def started(
    work: Callable[[], None],
    clock: HandClock,
    interval_s: float | Callable[[], float] = 5.0,
    *,
    waits_first: bool = False,
) -> Iterator[PeriodicTask]:
    task = PeriodicTask("test", work, interval_s, clock, waits_first=waits_first)
    task.start()
    yield task
    task.stop()


def test_a_round_comes_at_once_and_then_after_each_interval() -> None:
    clock, rounds = HandClock(), Rounds()
    with started(rounds, clock):
        wait_for(lambda: clock.pauses == [5.0])
        assert rounds.count == 1
        clock.let_pass()
        wait_for(lambda: clock.pauses == [5.0, 5.0])
        assert rounds.count == 2


def test_the_first_round_may_come_after_an_interval() -> None:
    clock, rounds = HandClock(), Rounds()
    with started(rounds, clock, waits_first=True):
        wait_for(lambda: clock.pauses == [5.0])
        assert rounds.count == 0
        clock.let_pass()
        wait_for(lambda: rounds.count == 1)


def test_the_interval_may_be_another_after_each_round() -> None:
    clock, rounds = HandClock(), Rounds()
    with started(rounds, clock, lambda: 3.0 - rounds.count):
        for _ in range(3):
            clock.let_pass()
        wait_for(lambda: len(clock.pauses) == 4)
        assert clock.pauses == [2.0, 1.0, 0.0, 0.0], "never less than none"


def test_a_task_that_is_woken_does_not_wait() -> None:
    clock, rounds = HandClock(), Rounds()
    with started(rounds, clock) as task:
        wait_for(lambda: clock.pauses == [5.0])
        task.wake()
        wait_for(lambda: clock.pauses == [5.0, 5.0])
        assert rounds.count == 2


def test_a_task_that_is_woken_in_a_round_has_another_one() -> None:
    clock = HandClock()
    entered, go_on, rounds = threading.Event(), threading.Event(), Rounds()

    def work() -> None:
        rounds()
        entered.set()
        assert go_on.wait(LIMIT_S)

    with started(work, clock) as task:
        assert entered.wait(LIMIT_S)
        task.wake()
        go_on.set()
        wait_for(lambda: rounds.count == 2)


def test_an_error_is_logged_and_the_next_round_comes(caplog: pytest.LogCaptureFixture) -> None:
    clock, rounds = HandClock(), Rounds()

    def work() -> None:
        rounds()
        if rounds.count == 1:
            raise KeyError("a fault")

    with started(work, clock):
        clock.let_pass()
        wait_for(lambda: rounds.count == 2)
    assert [record.getMessage() for record in caplog.records] == ["a round of test failed"]


def test_stop_waits_for_the_round_that_runs_and_lets_no_other_begin() -> None:
    clock = HandClock()
    entered, rounds = threading.Event(), Rounds()
    task: PeriodicTask

    def work() -> None:
        entered.set()
        assert task.stopping.wait(LIMIT_S)
        rounds()

    task = PeriodicTask("test", work, 0.0, clock)
    task.start()
    assert entered.wait(LIMIT_S)
    task.stop()
    assert rounds.count == 1


def test_stop_does_not_wait_for_longer_than_it_may() -> None:
    clock = HandClock()
    entered, go_on = threading.Event(), threading.Event()

    def work() -> None:
        entered.set()
        assert go_on.wait(LIMIT_S)

    task = PeriodicTask("test", work, 0.0, clock)
    task.start()
    assert entered.wait(LIMIT_S)
    task.stop(0.01)
    go_on.set()
    task.stop()


def test_an_error_of_a_round_that_is_stopped_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered = threading.Event()
    task: PeriodicTask

    def work() -> None:
        entered.set()
        assert task.stopping.wait(LIMIT_S)
        raise KeyError("what it needs is closed")

    task = PeriodicTask("test", work, 0.0, HandClock())
    task.start()
    assert entered.wait(LIMIT_S)
    task.stop()
    assert not caplog.records


def test_a_task_that_was_never_started_can_be_stopped() -> None:
    task = PeriodicTask("test", Rounds(), 1.0, HandClock())
    task.stop()
    assert task.stopping.is_set()
