"""Starts and stops whose answers are lost, that are refused, or that find no state."""

from __future__ import annotations

from speck.errors import EngineRefusedError, UnreachableError
from speck.model.change import ChangeState
from speck.model.job_operations import Stop
from speck.model.observation import RunState
from tests.service_helpers import engine
from tests.unit.deploy.bench import DONE, FAILED, Bench, join, start, states
from tests.waiting import wait_for


def test_a_start_that_never_runs_fails_in_the_end_with_its_cause(bench: Bench) -> None:
    engine("edge-a").hold_starts = True
    execution, thread = bench.start((start("A"), ()))
    wait_for(lambda: bool(execution._waiting))
    bench.clock.ahead_s += 100_000
    join(thread)
    assert states(execution.change) == [FAILED]
    assert execution.change.error == (
        "cannot start A: it is starting; see the engine's log at edge-a"
    )


def test_a_lost_answer_to_a_start_adopts_the_incarnation(bench: Bench) -> None:
    lost = UnreachableError("cannot reach edge-a: the answer was lost")
    engine("edge-a").refuse("submit", 1, lost, after=True)
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert change.operations[0].attempts == 2
    assert len(engine("edge-a").jobs) == 1


def test_a_lost_request_to_start_is_sent_again_under_the_same_id(bench: Bench) -> None:
    engine("edge-a").refuse("submit", 1, UnreachableError("cannot reach edge-a"))
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert list(engine("edge-a").jobs) == [start("A").engine_job_id]


def test_a_start_goes_on_from_the_newest_state_also_at_its_second_try(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    stop = Stop("edge-a", "A", 1, first.engine_job_id)
    bench.run((stop, ()))
    incarnation = bench.records.incarnations.get("c", "A")
    assert incarnation is not None and incarnation.ended and incarnation.savepoint is not None
    engine("edge-a").refuse("submit", 1, UnreachableError("cannot reach edge-a"))
    again = start("A", attempt=2, keeps_state=True)
    change = bench.run((again, ()))
    assert states(change) == [DONE]
    submission = engine("edge-a").jobs[again.engine_job_id].submission
    assert submission.state == incarnation.savepoint


def test_starts_that_fail_do_not_pile_up_in_the_record(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    bench.run((Stop("edge-a", "A", 1, first.engine_job_id), ()))
    base = bench.records.incarnations.get("c", "A")
    refusal = EngineRefusedError("cannot start A: no")
    for attempt in range(2, 6):
        engine("edge-a").refuse("submit", 1, refusal)
        bench.run((start("A", attempt=attempt, keeps_state=True), ()))
        incarnation = bench.records.incarnations.get("c", "A")
        assert incarnation is not None and incarnation.attempt == attempt
        assert incarnation.base == base


def test_a_start_without_any_state_to_be_found_is_refused(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    engine("edge-a").forget_jobs()
    change = bench.run((start("A", attempt=2, keeps_state=True), ()))
    assert change.error == (
        "cannot start A from its newest state: edge-a knows none of its attempt 1"
        f" (cannot find the state of {first.engine_job_id}: no such job): cannot reach state"
        " at edge-a: the site has no agent; run `speck agent --site edge-a --state-folder FOLDER`"
        " beside its engine, or give sites that share storage the same label state_uri;"
        " or set `upgrade: stateless` to start it without state"
    )
    assert engine("edge-a").count("submit") == 1


def test_a_job_that_failed_before_its_first_checkpoint_starts_anew(bench: Bench) -> None:
    first = start("A")
    bench.run((first, ()))
    engine("edge-a").fail(first.engine_job_id, "no memory")
    change = bench.run((start("A", attempt=2, keeps_state=True), ()))
    assert change.state is ChangeState.DONE, change.error


def test_a_stop_that_cannot_take_its_savepoint_ends_the_job_all_the_same(bench: Bench) -> None:
    engine("edge-a").hold_savepoints = True
    first = start("A")
    bench.run((first, ()))
    stop = Stop("edge-a", "A", 1, first.engine_job_id)
    execution, thread = bench.start((stop, ()), (start("A", attempt=2), (1,)))
    wait_for(lambda: bool(engine("edge-a").held))
    engine("edge-a").jobs[first.engine_job_id].state = RunState.RESTARTING
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE, DONE]
    assert engine("edge-a").jobs[first.engine_job_id].state is RunState.CANCELED
