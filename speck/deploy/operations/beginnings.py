"""Stores that an incarnation has begun to read, and finds out whether a forgotten one had."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from speck.binding import SavedState
from speck.deploy.begun_jobs import begin_sessions, by_client_id, left_state
from speck.deploy.operations.context import Context
from speck.errors import PermanentError
from speck.model.incarnation import Incarnation, StartState
from speck.model.job import Job
from speck.model.job_operations import Start
from speck.model.observation import RunState
from speck.store.tables import Batch


def put_begun(context: Context, job: Job, *, drained: bool = False) -> Batch:
    """The writes for the session that an incarnation has begun to read."""
    session = context.find_session(job)
    if session is None:
        return {}
    drained = (drained and not session.undrained) or session.drained
    result = replace(session, job=job, begun=True, drained=drained, remade=False)
    return context.records.sessions.put(context.scope, result) if result != session else {}


def find_forgotten_run(context: Context, incarnation: Incarnation) -> SavedState | None:
    """The newest checkpoint of a start whose answer was lost and that its engine does not know.

    None if it has not arrived. If it has, and the engine has lost its jobs since, its checkpoints
    tell: it has acknowledged messages, and its readers know its epoch, so it is not to be started
    again from an older state under the same id. Where nobody can look for checkpoints, it counts as
    not arrived.
    """
    own = incarnation.checkpoints
    with suppress(PermanentError):
        return context.keeper.newest(incarnation.job.engine, incarnation.engine_job_id, own)
    return None


def refuse_forgotten_run(context: Context, incarnation: Incarnation) -> None:
    """Raise PermanentError if a start whose answer was lost ran until its engine lost its jobs. The
    next plan finds a job that has begun and was lost, and so all others that ran there."""
    if find_forgotten_run(context, incarnation) is None:
        return
    job, engine = incarnation.job, context.connections.engine_of(incarnation.job.engine)
    for each in context.records.inventory(context.scope).jobs.values():
        if not each.may_arrive or each.job.site != job.site:
            continue
        is_forgotten = engine.status(each.engine_job_id) is None
        if is_forgotten and find_forgotten_run(context, each) is not None:
            record_accepted(context, each)
    raise PermanentError(
        f"cannot go on with attempt {incarnation.attempt} of {job.job_name}: it ran, and"
        f" {job.site} does not know it any more; apply again"
    )


def record_accepted(
    context: Context, incarnation: Incarnation, event: Batch | None = None
) -> Incarnation:
    """Store that an incarnation has begun: from now on, an engine that does not know its id has
    forgotten the job, and what waits for readers that change at the same record is for these as
    they are to run."""
    records, scope, job = context.records, context.scope, incarnation.job
    # a handover may change them meanwhile, and which of them another one is read instead of
    there = records.sessions.of_scope(scope) if incarnation.commits else []
    names = {context.source_client_id(job), *(each.client_id for each in there)}
    accepted = replace(incarnation, start=StartState.ACCEPTED, commits=())
    with context.writing.all_of(names.union(client_id for client_id, *_ in incarnation.commits)):
        own = context.find_session(job)
        found = records.sessions.of_scope(scope) if incarnation.commits else filter(None, [own])
        sessions = by_client_id(found)
        batch = records.incarnations.put(scope, accepted)
        for each in begin_sessions(records.installation, incarnation, sessions).values():
            batch |= records.sessions.put(scope, each)
        records.write(batch, event or {})
    return accepted


def record_arrived(context: Context, incarnation: Incarnation, state: RunState) -> Incarnation:
    """Store of an incarnation whose engine lists it, though that was not heard, that it has begun;
    that it is void if it failed, or was cancelled, and left no state of its own: then its id may
    have been fenced."""
    if state in (RunState.FAILED, RunState.CANCELED):
        engine = context.connections.engine_of(incarnation.job.engine)
        if not left_state(engine, incarnation):
            void = incarnation.as_void()
            context.records.write(context.records.incarnations.put(context.scope, void))
            return void
    return record_accepted(context, incarnation)


def record_forms(context: Context, starts: Iterable[Start]) -> None:
    """Store how readers are to run that have a session and have not begun: an earlier change that
    ended early wanted other sinks."""
    jobs, records = [start.job for start in starts], context.records
    batch: Batch = {}
    with context.writing.all_of(map(context.source_client_id, jobs)):
        for job in jobs:
            session = context.find_session(job)
            if session is None or session.begun or session.job is None or not session.reserved:
                continue
            if session.job.port != job.port:
                batch |= records.sessions.put(context.scope, replace(session, job=job))
        if batch:
            records.write(batch)
