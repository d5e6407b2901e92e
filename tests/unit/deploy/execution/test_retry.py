"""Whether and when a step is tried again, by the type of its error. No time passes here."""

from __future__ import annotations

import pytest

from speck.deploy.execution.bounds import Bounds
from speck.deploy.execution.retry import Retries, Retry
from speck.errors import EngineRefusedError, PermanentError, TransientError, UnreachableError

BOUNDS = Bounds(retry_first_s=1.0, retry_most_s=5.0, retry_for_s=60.0)
BUSY = TransientError("cannot upload: busy")
SILENT = UnreachableError("cannot reach edge-a")


@pytest.mark.parametrize(
    "error", [PermanentError("cannot"), EngineRefusedError("cannot"), KeyError("a fault in speck")]
)
def test_what_is_not_transient_is_given_up_at_once(error: Exception) -> None:
    retries = Retries(BOUNDS)
    assert retries.schedule(1, error, 0.0) is None
    assert not retries
    assert retries.next_at() is None


def test_the_pauses_double_up_to_the_longest() -> None:
    retries, now, pauses = Retries(BOUNDS), 100.0, []
    for number in range(1, 6):
        retry = retries.schedule(1, BUSY, now)
        assert retry is not None
        assert retry.number == number
        pauses.append(retry.at - now)
        now = retry.at
        assert retries.take_due(now) == [1]
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_step_is_due_at_its_time_and_not_before() -> None:
    retries = Retries(BOUNDS)
    assert retries.schedule(1, BUSY, 10.0) == Retry(11.0, 1)
    assert retries.schedule(2, BUSY, 9.5) == Retry(10.5, 1)
    assert retries.next_at() == 10.5
    assert retries.take_due(10.4) == []
    assert retries.take_due(12.0) == [2, 1]
    assert not retries


def test_of_two_that_are_due_at_once_the_first_comes_first() -> None:
    retries = Retries(BOUNDS)
    for step_id in (3, 1, 2):
        retries.schedule(step_id, BUSY, 0.0)
    assert retries.take_due(1.0) == [3, 1, 2]


def test_a_site_that_answers_has_so_long_to_do_better_and_no_longer() -> None:
    retries = Retries(BOUNDS)
    assert retries.schedule(1, BUSY, 0.0)
    assert retries.schedule(1, BUSY, 59.0)
    assert retries.schedule(1, BUSY, 60.0) is None
    assert retries.schedule(2, BUSY, 60.0), "each step has its own time"


def test_silence_is_waited_out_without_an_end_and_begins_the_time_anew() -> None:
    retries = Retries(BOUNDS)
    retries.schedule(1, BUSY, 0.0)
    for now in (50.0, 5_000.0, 500_000.0):
        assert retries.schedule(1, SILENT, now)
    assert retries.schedule(1, BUSY, 500_001.0)
    assert retries.schedule(1, BUSY, 500_060.0)
    assert retries.schedule(1, BUSY, 500_061.0) is None


def test_tries_that_take_long_are_no_successes() -> None:
    """A call may take longer than a site has to recover, and fail."""
    retries = Retries(BOUNDS)
    assert retries.schedule(1, BUSY, 0.0)
    assert retries.schedule(1, BUSY, 61.0) is None


def test_a_step_that_goes_well_for_a_moment_between_its_failures_is_given_up() -> None:
    retries = Retries(BOUNDS)
    for now in (0.0, 20.0, 40.0, 59.0):
        assert retries.schedule(1, BUSY, now)
        retries.record_success(1, now + 1.0)
    assert retries.schedule(1, BUSY, 61.0) is None


def test_a_step_that_went_well_for_long_has_all_its_time_again() -> None:
    retries = Retries(BOUNDS)
    for now in (0.0, 30.0):
        retries.schedule(1, BUSY, now)
    for now in (31.0, 90.0):
        retries.record_success(1, now)
    assert retries.schedule(1, BUSY, 100.0) == Retry(101.0, 1)
    assert retries.schedule(1, BUSY, 159.0)


def test_what_is_given_up_is_not_tried_again() -> None:
    retries = Retries(BOUNDS)
    retries.schedule(1, BUSY, 0.0)
    retries.schedule(2, SILENT, 0.0)
    assert len(retries) == 2
    assert retries.give_up() == {1, 2}
    assert retries.take_due(1e9) == []
