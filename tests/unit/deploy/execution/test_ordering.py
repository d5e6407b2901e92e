"""Which step may run next, without sites, threads or a store."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from speck.deploy.execution.ordering import Call, ReadyCalls, StepOrder
from speck.deploy.operations import Done
from speck.model.job_operations import Upload
from speck.model.link import Link
from speck.model.link_operations import Release
from speck.model.plan import Step


def step(
    step_id: int,
    *after: int,
    whatever: Iterable[int] = (),
    only_if_failed: int | None = None,
) -> Step:
    upload = Upload("edge-a", f"{step_id:064x}")
    return Step(step_id, upload, after, "", frozenset(whatever), only_if_failed)


def finish() -> Done:
    return Done()


def test_the_steps_for_which_most_others_wait_are_released_first() -> None:
    order = StepOrder([step(1), step(2), step(3), step(4, 2), step(5, 3), step(6, 3)])
    assert order.release_first() == [3, 2, 1]
    assert order.is_awaited(3)
    assert not order.is_awaited(1)


def test_a_step_is_released_once_all_before_it_have_succeeded() -> None:
    order = StepOrder([step(1), step(2), step(3, 1, 2), step(4, 3)])
    assert order.release_first() == [1, 2]
    assert order.release_after_success(2) == []
    assert order.release_after_success(1) == [3]
    assert order.release_after_success(3) == [4]


def test_a_failure_skips_all_that_need_a_success_and_nothing_else() -> None:
    order = StepOrder([step(1), step(2), step(3, 1), step(4, 3), step(5, 2), step(6, 1, 2)])
    order.release_first()
    after = order.end_failed(1)
    assert sorted(after.skipped) == [3, 4, 6]
    assert after.ready == []
    assert order.release_after_success(2) == [5]


def test_a_step_that_waits_only_for_an_end_is_ready_after_a_failure() -> None:
    order = StepOrder([step(1), step(2, 1, whatever=[1]), step(3, 2)])
    order.release_first()
    after = order.end_failed(1)
    assert (after.skipped, after.ready) == ([], [2])
    assert order.release_after_success(2) == [3]


def test_a_step_that_waits_only_for_an_end_is_ready_after_a_skip() -> None:
    order = StepOrder([step(1), step(2, 1), step(3, 2, whatever=[2])])
    order.release_first()
    after = order.end_failed(1)
    assert (after.skipped, after.ready) == ([2], [3])


def test_who_waits_only_so_long_goes_on_while_a_site_is_silent() -> None:
    """Once, and neither the late end nor a failure releases it again."""
    link = Link("edge-a", "x")
    release = Release("edge-a", link, "r", None, False, limit_s=5.0)
    impatient = Step(3, release, (1, 2), "", frozenset({1}))
    order = StepOrder([step(1), step(2), impatient, step(4, 1, whatever=[1])])
    order.release_first()
    assert order.release_impatient(1, 4.9) == []
    assert order.release_impatient(1, 5.0) == []
    assert order.release_after_success(2) == [3]
    assert order.release_impatient(1, 9.0) == []
    assert order.release_after_success(1) == [4]
    order = StepOrder([step(1), step(2), impatient])
    order.release_first()
    assert order.release_impatient(1, 5.0) == []
    assert order.end_failed(1).ready == []
    assert order.release_after_success(2) == [3]


def test_a_way_back_is_spared_by_success_and_released_by_failure() -> None:
    steps = [step(1), step(2, 1, whatever=[1], only_if_failed=1), step(3, 1)]
    order = StepOrder(steps)
    order.release_first()
    assert order.skip_spared(1) == [2]
    assert order.release_after_success(1) == [3]

    order = StepOrder(steps)
    order.release_first()
    after = order.end_failed(1)
    assert (after.skipped, after.ready) == ([3], [2])


def test_nothing_is_released_once_the_rest_is_given_up() -> None:
    order = StepOrder([step(1), step(2, 1), step(3, 2)])
    order.release_first()
    assert order.give_up() == {2, 3}
    assert order.release_after_success(1) == []
    assert order.give_up() == set()


@pytest.mark.parametrize("fails", [False, True])
def test_each_of_many_steps_is_met_once(fails: bool) -> None:
    count = 10_000
    order = StepOrder([step(n, *({n - 1, n // 2} - {0})) for n in range(1, count + 1)])
    met = order.release_first()
    if fails:
        met += order.end_failed(1).skipped
    else:
        for step_id in met:
            met += order.release_after_success(step_id)
    assert sorted(met) == list(range(1, count + 1))


def test_calls_are_taken_from_each_site_in_turn() -> None:
    calls = ReadyCalls()
    for step_id in range(3):
        calls.add("edge-a", Call(step_id))
    calls.add("edge-b", Call(99))
    assert [call.step_id for call in calls.take(lambda site: True, 99)] == [0, 99, 1, 2]
    assert not calls


def test_no_more_calls_are_taken_than_there_are_threads() -> None:
    calls = ReadyCalls()
    for step_id in range(6):
        calls.add(f"edge-{step_id % 2}", Call(step_id))
    assert len(calls.take(lambda site: True, 3)) == 3
    assert len(calls.take(lambda site: True, 99)) == 3


def test_each_site_has_its_turn_however_few_calls_are_taken() -> None:
    calls = ReadyCalls()
    for n in range(600):
        calls.add(f"edge-{n % 60}", Call(n))
    taken = [call.step_id % 60 for _ in range(15) for call in calls.take(lambda site: True, 16)]
    assert set(taken) == set(range(60))


def test_a_site_without_room_keeps_its_calls_and_holds_up_no_other() -> None:
    calls = ReadyCalls()
    calls.add("edge-a", Call(1))
    calls.add("edge-b", Call(2))
    assert [call.step_id for call in calls.take(lambda site: site == "edge-b", 99)] == [2]
    assert calls
    assert [call.step_id for call in calls.take(lambda site: True, 99)] == [1]


def test_what_ends_a_wait_goes_first_and_is_not_dropped() -> None:
    calls = ReadyCalls()
    calls.add("edge-a", Call(1))
    calls.add_first("edge-a", Call(2, finish))
    calls.add("edge-a", Call(3))
    assert calls.drop_operations() == {1, 3}
    assert calls.take(lambda site: True, 99) == [Call(2, finish)]
