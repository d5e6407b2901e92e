"""What the executor makes of sites that do not answer, and of a cancel."""

from __future__ import annotations

from speck.deploy.execution import Bounds
from speck.errors import TransientError
from speck.model.change import ChangeState
from speck.model.plan_outline import OperationState
from tests.service_helpers import engine
from tests.unit.deploy.bench import BLOCKED, CANCELLED, DONE, Bench, join, start, states, upload
from tests.waiting import wait_for


def has_state(bench: Bench, state: str) -> bool:
    stored = bench.records.changes.head("1")
    return stored is not None and stored.state == state


def test_a_site_that_does_not_answer_blocks_its_steps_until_it_does(bench: Bench) -> None:
    engine("edge-a").unreachable = True
    execution, thread = bench.start(
        (upload("edge-a"), ()), (start("A"), (1,)), (upload("cloud"), ())
    )
    change = execution.change
    wait_for(lambda: change.state is ChangeState.BLOCKED)
    wait_for(lambda: states(change) == [BLOCKED, OperationState.PENDING, DONE])
    assert change.operations[0].error == (
        "cannot reach http://edge-a.test:8081: made unreachable by a test"
    )
    wait_for(lambda: has_state(bench, "blocked"))
    engine("edge-a").unreachable = False
    join(thread)
    assert states(change) == [DONE, DONE, DONE]
    assert change.state is ChangeState.DONE
    assert change.operations[0].error is None


def test_waiting_for_a_site_has_no_end_and_uses_up_no_patience(bench: Bench) -> None:
    engine("edge-a").unreachable = True
    execution, thread = bench.start((upload("edge-a"), ()))
    wait_for(lambda: execution.change.state is ChangeState.BLOCKED)
    bench.clock.ahead_s += 100_000
    engine("edge-a").refuse("upload", 2, TransientError("cannot upload: still waking up"))
    engine("edge-a").unreachable = False
    join(thread)
    assert states(execution.change) == [DONE]


def test_a_start_whose_site_falls_silent_is_blocked_and_not_given_up(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()))
    change = execution.change
    wait_for(lambda: bool(execution._waiting))
    engine("edge-a").unreachable = True
    wait_for(lambda: change.state is ChangeState.BLOCKED)
    tried = engine("edge-a").count("view")
    bench.clock.ahead_s += 100_000
    wait_for(lambda: engine("edge-a").count("view") > tried + 2)
    assert states(change) == [BLOCKED]
    engine("edge-a").unreachable = False
    wait_for(lambda: change.state is ChangeState.RUNNING)
    engine("edge-a").let_go()
    join(thread)
    assert states(change) == [DONE]
    assert engine("edge-a").count("submit") == 1


def test_cancel_starts_nothing_more_and_lets_end_what_is_under_way(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()), (start("B"), (1,)), (start("C"), (2,)))
    wait_for(lambda: bool(execution._waiting))
    execution.cancel()
    wait_for(lambda: states(execution.change)[1:] == [CANCELLED, CANCELLED])
    assert thread.is_alive()
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE, CANCELLED, CANCELLED]
    assert execution.change.state is ChangeState.CANCELLED
    assert len(engine("edge-a").running()) == 1


def test_cancel_ends_a_step_that_awaits_its_next_try(bench: Bench) -> None:
    engine("edge-a").refuse("upload", 10_000, TransientError("cannot upload: busy"))
    bounds = Bounds(retry_first_s=1000, retry_most_s=1000, retry_for_s=1e6)
    execution, thread = bench.start((upload("edge-a"), ()), bounds=bounds)
    wait_for(lambda: bool(execution._retries))
    execution.cancel()
    join(thread)
    assert states(execution.change) == [CANCELLED]
    assert execution.change.state is ChangeState.CANCELLED


def test_cancel_ends_a_change_whose_site_is_silent(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()), (start("B"), (1,)))
    wait_for(lambda: bool(execution._waiting))
    engine("edge-a").unreachable = True
    wait_for(lambda: execution.change.state is ChangeState.BLOCKED)
    execution.cancel()
    join(thread)
    assert states(execution.change) == [CANCELLED, CANCELLED]
