"""Restores the former incarnation of a job after a failed start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from speck.deploy.begun_jobs import is_unheard
from speck.deploy.operations.beginnings import (
    find_forgotten_run,
    record_accepted,
    record_arrived,
)
from speck.deploy.operations.coming_up import record_if_void
from speck.deploy.operations.context import Context
from speck.deploy.operations.fencing import fence
from speck.deploy.operations.outcome import Outcome, Waiting
from speck.deploy.operations.starting import start
from speck.errors import DuplicateJobError, EngineRefusedError
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, Incarnation, Session, StaleSink
from speck.model.job_operations import Fence, Return, Start
from speck.model.observation import EngineJob, RunState
from speck.store.tables import Batch


def come_back(context: Context, operation: Return) -> Outcome:
    """Make sure that the failed start does not run, then start the former job from the newest
    state.

    That may be the state of the failed incarnation. Raises UnreachableError while the site of the
    failed start does not answer: it may run there.
    """
    newest = context.find_incarnation(operation.job_name)
    if newest is None or newest.engine_job_id != operation.failed or newest.void:
        return _start(context, operation)
    engine = context.connections.engine_of(newest.job.engine)
    state = engine.status(newest.engine_job_id)
    if state is None:
        _fence(context, newest)
    elif state is RunState.RUNNING:  # it has published since its last checkpoint
        failed = Fence(newest.job.site, operation.job_name, newest.attempt, newest.engine_job_id)
        return _go_on(context, operation, fence(context, failed))
    elif not state.terminal:
        engine.cancel(newest.engine_job_id)
        return Waiting(
            newest.job.engine,
            lambda jobs: _is_over(jobs, newest.engine_job_id),
            lambda: come_back(context, operation),
            context.find_limits(newest.job.engine).start_s,
            lambda: f"cannot bring {operation.job_name} back: {newest.job.site} still lists it",
        )
    else:
        _record_over(context, newest, state)
    return _start(context, operation)


def _record_over(context: Context, newest: Incarnation, state: RunState) -> None:
    """Store the end of a failed start that its engine lists as over."""
    if is_unheard(newest):
        newest = record_arrived(context, newest, state)
    _record_end(context, newest if newest.void else record_if_void(context, newest))


def _go_on(context: Context, operation: Return, stopped: Outcome) -> Outcome:
    """Come back once the failed start has stopped."""
    if isinstance(stopped, Waiting):
        finish = stopped.finish
        return replace(stopped, finish=lambda: _go_on(context, operation, finish()))
    context.store(stopped)
    return come_back(context, operation)


def _is_over(jobs: Mapping[str, EngineJob], engine_job_id: str) -> bool:
    job = jobs.get(engine_job_id)
    return job is None or job.state.terminal


def _fence(context: Context, newest: Incarnation) -> None:
    """The engine does not know the start: make sure that it never arrives.

    It may have run before its engine forgot it. Its state is looked for before its id is fenced:
    afterwards the engine knows the id, and reports no checkpoints for it.
    """
    if newest.accepted:
        state = context.keeper.newest(newest.job.engine, newest.engine_job_id, newest.checkpoints)
    else:
        state = find_forgotten_run(context, newest)
        newest = record_accepted(context, newest) if state else newest
    incarnation = replace(newest, savepoint=state.location) if state else newest
    if state is not None:
        context.records.write(context.records.incarnations.put(context.scope, incarnation))
    engine, kind = context.connections.engine_of(newest.job.engine), newest.job.artifact_kind
    with suppress(DuplicateJobError):
        engine.fence(newest.engine_job_id, kind)
        _record_end(context, incarnation if state else incarnation.as_void())
        return
    context.records.write(context.records.incarnations.put(context.scope, newest))
    raise EngineRefusedError(f"cannot bring {newest.job.job_name} back: its start has arrived")


def _record_end(context: Context, newest: Incarnation) -> None:
    incarnation = replace(newest, end=EndState.ENDED)
    context.records.write(context.records.incarnations.put(context.scope, incarnation))


def _start(context: Context, operation: Return) -> Outcome:
    newest = context.find_incarnation(operation.job_name)
    outcome = start(
        context,
        Start(
            operation.job,
            operation.attempt,
            operation.engine_job_id,
            operation.sink_has_readers,
            operation.keeps_state and newest is not None,
            operation.former_sinks,
            _list_stale_sinks(newest, operation),
            commits=operation.commits,
        ),
    )
    return _add_event(context, operation, outcome)


def _list_stale_sinks(newest: Incarnation | None, operation: Return) -> tuple[StaleSink, ...]:
    """The sinks still to be cleared, without those of the link that the job writes to again."""
    stale = newest.stale if newest is not None else ()
    return tuple(sink for sink in stale if sink.link not in operation.job.port)


def _add_event(context: Context, operation: Return, outcome: Outcome) -> Outcome:
    """The outcome, with an event once the job is back."""
    if isinstance(outcome, Waiting):
        finish = outcome.finish
        return replace(outcome, finish=lambda: _add_event(context, operation, finish()))
    if operation.fed:
        _leave(context, operation)
    event = context.records.events.make(
        "job",
        f"{operation.job_name} came back as attempt {operation.attempt} on {operation.site}",
        site=operation.site,
        job_name=operation.job_name,
    )
    return outcome.with_writes(event)


def _leave(context: Context, operation: Return) -> None:
    """Store what holds of the session that was to be read, from a cut on that is committed, instead
    of that of the job which is back: what waits in it is taken by that job. A reader that it had
    followed is followed by the others that took its place."""
    records = context.records
    names = {each.client_id for each in records.inventory(context.scope).sessions}
    # not with the outcome: two jobs that come back at once may change the same sessions
    with context.writing.all_of(names):
        sessions = [s for s in records.inventory(context.scope).sessions if s.client_id in names]
        records.write(_put_left(context, operation, sessions))


def _put_left(context: Context, operation: Return, sessions: Sequence[Session]) -> Batch:
    job, records = operation.job, context.records
    own = source_client_id(records.installation, job.job_name, job.source)
    back = next((each for each in sessions if each.client_id == own), None)
    if back is None or back.instead_of is None:
        return {}
    batch = records.sessions.put(context.scope, replace(back, instead_of=None))
    left = [s for s in sessions if s.client_id == back.instead_of and not s.begun]
    for session in left:
        batch |= records.sessions.put(context.scope, replace(session, drained=True, former=None))
        beside = [s for s in sessions if s.former == session.former is not None and s not in left]
        for former in sessions:
            if beside and former.followed_by == session.client_id:
                followed = replace(former, followed_by=beside[0].client_id)
                batch |= records.sessions.put(context.scope, followed)
    return batch
