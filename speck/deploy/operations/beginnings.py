"""Stores that an incarnation has begun to read, and finds out whether a forgotten one had."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from speck.binding import SavedState
from speck.deploy.operations.context import Context
from speck.errors import PermanentError
from speck.model.incarnation import Incarnation, Session, StartState
from speck.model.job import Job
from speck.model.job_operations import Start
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
    forgotten the job."""
    job, records = incarnation.job, context.records
    accepted = replace(incarnation, start=StartState.ACCEPTED)
    with context.writing[context.source_client_id(job)]:
        records.write(
            records.incarnations.put(context.scope, accepted), put_begun(context, job), event or {}
        )
    return accepted


def commit(context: Context, operation: Start) -> None:
    """Store that a reader has begun from the record at which others change, too: what waits for
    these is for them as they are to run."""
    records, scope = context.records, context.scope
    batch: Batch = {}
    there = records.inventory(scope).sessions if operation.commits else ()
    names = {each.client_id for each in there} | {client_id for client_id, *_ in operation.commits}
    # a handover may change them meanwhile, and which of them another one is read instead of
    with context.writing.all_of(names):
        for client_id, job, starts_later in operation.commits:
            session = records.sessions.get(scope, client_id, job.source_site)
            if session is None or session.link != job.source or not session.usable:
                continue
            begun = session.begun and not starts_later
            changed = replace(session, committed=True, job=job, begun=begun, instead_of=None)
            batch |= records.sessions.put(scope, changed)
            batch |= _put_instead(context, session)
        if batch:
            records.write(batch)


def _put_instead(context: Context, session: Session) -> Batch:
    """The writes for the session from which records were taken until now."""
    for old in context.records.inventory(context.scope).sessions:
        if old.client_id == session.instead_of:
            changed = replace(old, instead_of=session.client_id)
            return context.records.sessions.put(context.scope, changed)
    return {}


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
