"""Savepoints and checkpoints."""

from __future__ import annotations

from uuid import uuid4

import pytest

from speck.binding import Checkpointing, SavedState, StreamEngine
from speck.errors import EngineRefusedError
from speck.model.observation import RunState
from tests.contracts.engines.benches import Bench, await_finish, becomes, run, stop, submission
from tests.waiting import wait_for


def checkpointed(bench: Bench, engine: StreamEngine, job: str) -> SavedState:
    def look() -> SavedState | None:
        bench.work()
        return engine.newest_state(job)

    return wait_for(look, "a checkpoint")


def test_stop_leaves_a_savepoint_and_repeating_it_is_harmless(
    bench: Bench, engine: StreamEngine
) -> None:
    job = run(engine, submission(bench))
    trigger, folder = uuid4().hex, bench.folder()
    engine.stop(job, folder, trigger)
    engine.stop(job, folder, trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.failure is None
    assert progress.location is not None
    becomes(engine, job, RunState.FINISHED)
    engine.stop(job, folder, trigger)
    assert engine.save_progress(job, trigger) == progress
    newest = engine.newest_state(job)
    assert newest is not None
    assert (newest.location, newest.on_request) == (progress.location, True)


def test_a_job_goes_on_from_a_savepoint(bench: Bench, engine: StreamEngine) -> None:
    location = stop(bench, engine, run(engine, submission(bench)))
    job = run(engine, submission(bench, savepoint=location))
    assert checkpointed(bench, engine, job).location
    assert run(engine, submission(bench, savepoint=location)), "the state stays ours"


def test_a_savepoint_alone_leaves_the_job_running(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    trigger = uuid4().hex
    engine.save(job, bench.folder(), trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.location is not None
    assert progress.failure is None
    assert engine.status(job) is RunState.RUNNING


def test_a_checkpoint_may_be_asked_for(bench: Bench, engine: StreamEngine) -> None:
    """Also for a job that is gone: the next checkpoint shows any effect."""
    engine.checkpoint(uuid4().hex, uuid4().hex)
    job = run(engine, submission(bench))
    trigger = uuid4().hex
    engine.checkpoint(job, trigger)
    assert engine.status(job) is RunState.RUNNING
    checkpointed(bench, engine, job)
    wait_for(lambda: engine.checkpoint_progress(job, trigger).done)
    assert engine.checkpoint_progress(job, trigger).failure is None
    with pytest.raises(EngineRefusedError, match=r"^cannot read progress of "):
        engine.checkpoint_progress(job, uuid4().hex)


def test_a_savepoint_fails_while_tasks_wait(bench: Bench, engine: StreamEngine) -> None:
    wide = submission(bench, parallelism=bench.slots + 1)
    engine.submit(wide)
    trigger = uuid4().hex
    engine.save(wide.engine_job_id, bench.folder(), trigger)
    progress = await_finish(engine, wide.engine_job_id, trigger)
    assert progress.location is None
    assert progress.failure is not None


def test_an_unknown_trigger_is_refused(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(EngineRefusedError, match=r"^cannot read progress of "):
        engine.save_progress(job, uuid4().hex)


def test_a_job_cannot_start_from_state_that_is_nowhere(bench: Bench, engine: StreamEngine) -> None:
    desired = submission(bench, savepoint="/nowhere/savepoint-1")
    with pytest.raises(EngineRefusedError, match=r"^cannot start trial: .*/nowhere/savepoint-1"):
        engine.submit(desired)
    assert engine.status(desired.engine_job_id) in (None, RunState.FAILED)


def test_checkpoints_are_found_and_outlive_a_cancel(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    before = checkpointed(bench, engine, job)
    assert not before.on_request
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    after = engine.newest_state(job)
    assert after is not None
    assert after.number >= before.number
    assert run(engine, submission(bench, savepoint=after.location))


def test_checkpoints_that_complete_are_told(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))

    def another_than(known: int | None) -> Checkpointing | None:
        bench.work()
        checkpointing = engine.checkpointing(job)
        assert checkpointing is not None
        return checkpointing if checkpointing.completed_id not in (None, known) else None

    first = wait_for(lambda: another_than(None), "a checkpoint")
    assert first.interval_s is not None
    assert 0 < first.interval_s <= 1
    second = wait_for(lambda: another_than(first.completed_id), "the next")
    assert first.completed_id is not None
    assert second.completed_id is not None
    assert second.completed_id > first.completed_id


def test_checkpoints_of_an_unknown_job_are_unknown(engine: StreamEngine) -> None:
    assert engine.checkpointing(uuid4().hex) is None
