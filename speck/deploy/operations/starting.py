"""Starts an incarnation: store it, submit it, wait until it runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from speck.deploy.operations.beginnings import (
    record_accepted,
    record_arrived,
    refuse_forgotten_run,
)
from speck.deploy.operations.coming_up import ComingUp, record_if_void
from speck.deploy.operations.comparing import report_late_failure
from speck.deploy.operations.context import Context, hiding
from speck.deploy.operations.cut_sessions import (
    put_back,
    refuse_incomplete_start,
    refuse_to_begin_alone,
)
from speck.deploy.operations.final_reports import Doubt, keep_report
from speck.deploy.operations.links import record_owed
from speck.deploy.operations.outcome import Outcome
from speck.deploy.operations.state_transfer import bring
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    MainTimeoutError,
    PermanentError,
    SpeckError,
    TransientError,
)
from speck.model.incarnation import EndState, Incarnation, UsedState
from speck.model.job_operations import Start
from speck.model.values import cut
from speck.store.tables import Batch


def start(context: Context, operation: Start, doubt: Doubt | None = None) -> Outcome:
    """Start the incarnation from the newest state there is now, and wait until all its tasks run.

    A start without an answer that its engine lists has arrived: it is not sent again. The engine
    might lose its jobs just before, and would then begin this one anew, from an older state, under
    numbers that its readers know. `doubt`: whether a broker still has what the job said at its end
    has been unclear.
    """
    old = context.find_incarnation(operation.job_name)
    if old is not None and old.switched:  # stored under its id, and not sent before
        old = old.base
    if old is not None and old.engine_job_id == operation.engine_job_id:
        if old.accepted:
            return ComingUp(context, operation, old).begin()  # only the wait is repeated
        state = context.connections.engine_of(old.job.engine).status(old.engine_job_id)
        if state is not None:
            return ComingUp(context, operation, record_arrived(context, old, state)).begin()
        refuse_forgotten_run(context, old)
        old = old.base
        _check_session(context, operation, old)  # its broker may have died with its engine
    else:
        refuse_incomplete_start(context, operation)
        _check_session(context, operation, old)
        _refuse_followed(context, operation)
        waiting = keep_report(context, operation, old, doubt, partial(start, context, operation))
        if waiting is not None:
            return waiting

    def submit(source: Incarnation | None, savepoint: str | None) -> Outcome:
        _refuse_a_second(context, old)
        incarnation = _submit(context, operation, source, savepoint)
        return ComingUp(context, operation, incarnation).begin()

    _record_last_epoch(context, old)
    if not operation.keeps_state:
        return submit(old, None)
    return bring(context, old, operation.site, submit)


def _record_last_epoch(context: Context, old: Incarnation | None) -> None:
    """Store the last numbers of a job that starts again, and so numbers anew, with the sessions of
    readers outside speck: these report nothing by which the messages would be known. If the broker
    does not answer, the number of messages is not known any more."""
    if old is None:
        return
    job = old.job
    for link in job.port:
        there = context.records.sessions.on_link(context.scope, link)
        names = tuple(session.client_id for session in there if session.job_name is None)
        sinks = (*old.former_sinks_of(link), context.sink_client_id(job, link))
        try:
            record_owed(context, link.site, link, sinks, names)
        except TransientError:
            _stop_counting(context, link.site, names)


def _stop_counting(context: Context, site: str, names: Sequence[str]) -> None:
    sessions = context.records.sessions
    for name in names:
        with context.writing[name]:
            session = sessions.get(context.scope, name, site)
            if session is not None and session.reserved:  # it is not being released
                uncounted = replace(session, fed_outside=True)
                context.records.write(sessions.put(context.scope, uncounted))


def _check_session(context: Context, operation: Start, old: Incarnation | None) -> None:
    """Check, before its first use, that a reader's reserved session still exists.

    A broker that is killed soon after a reservation forgets it. If no other reader is on the link,
    its sinks wait for this reader. Otherwise the others' sessions get the messages, and with the
    reservation the sinks are asked to send again what they sent since. If the reader is to
    continue where another one ended, the other reader, whose session is older, first has to take
    what came since: also if the lost one has been made again in the meantime. PermanentError is
    raised then, and the next plan lets it do so.
    """
    job, records, scope = operation.job, context.records, context.scope
    client_id = context.source_client_id(job)
    session = records.sessions.get(scope, client_id, job.source_site)
    while old is not None:  # an incarnation that reads the link may use it
        if old.job.source == job.source and not old.void:
            return
        old = old.base
    others = [s for s in records.sessions.on_link(scope, job.source) if s.client_id != client_id]
    if session is None or not others:
        return
    broker, at = (
        context.connections.broker(job.source_site),
        records.sessions.find_position(session),
    )
    with context.reserving[client_id]:
        made = broker.reserve(client_id, job.source.topic, at=at)
        session = records.sessions.get(scope, client_id, job.source_site) or session
    is_complete = made.existed and not session.remade
    if is_complete or made.position:  # a log still holds what came meanwhile
        return
    former = next((s for s in others if s.client_id == session.former), None)
    if former is None:
        refuse_to_begin_alone(context, operation, session)
        return
    beside = [each for each in others if each.former == former.client_id]
    if any(each.begun for each in beside):  # those that have not keep their places
        beside = []
    put_back(context, session.link, {each.client_id for each in beside}, [session])
    raise PermanentError(
        f"cannot start {job.job_name}: the broker of {job.source_site} has lost its session on"
        f" {cut(job.source.topic)} since it was reserved; apply again: {former.job_name} then takes"
        " what came meanwhile"
    )


def _refuse_followed(context: Context, operation: Start) -> None:
    """Raise PermanentError if a reader to which its link was handed over has begun, though it had
    not when the plan was made: a start whose answer was lost may have arrived. That reader has
    taken what waits in this one's session."""
    job, records = operation.job, context.records
    client_id = context.source_client_id(job)
    session = records.sessions.get(context.scope, client_id, job.source_site)
    if session is None or session.followed_by is None:
        return
    follower = records.sessions.get(context.scope, session.followed_by, job.source_site)
    if follower is not None and follower.begun:
        raise PermanentError(
            f"cannot start {job.job_name}: {follower.job_name} has gone on in its place on"
            f" {cut(job.source.topic)}; apply again"
        )


def _refuse_a_second(context: Context, old: Incarnation | None) -> None:
    """Raise PermanentError if an earlier incarnation runs though it had ended or was gone when the
    plan was made: an engine may bring its jobs back after a restart."""
    while old is not None:
        if not (old.ended or old.void):
            state = context.connections.engine_of(old.job.engine).status(old.engine_job_id)
            if state is not None and not state.terminal:
                raise PermanentError(
                    f"cannot start {old.job.job_name}: its attempt {old.attempt} is {state} at"
                    f" {old.job.site} again; apply again"
                )
        old = old.base


def _submit(
    context: Context, operation: Start, old: Incarnation | None, savepoint: str | None
) -> Incarnation:
    """Store the incarnation, submit it, and store that the engine accepted it.

    `old` is the incarnation with the newest state; `savepoint` is the path from which the site
    reads it.
    """
    # the plan may be older than a change of these addresses
    job = operation.job.at_addresses_of(context.records.sites.all())
    operation = replace(operation, job=job)
    secrets = context.read_secrets(job)
    while old is not None and old.void:
        old = old.base
    context.views.record_start(job.source_site, context.source_client_id(job))
    for link in job.port:
        context.views.record_start(link.site, context.sink_client_id(job, link))
    context.resends.end(job)
    incarnation = Incarnation(
        operation.job,
        operation.attempt,
        operation.engine_job_id,
        base=old,
        former_sinks=operation.former_sinks,
        restored=savepoint,
        left=_list_start_states(context, operation, old, savepoint),
        stale=operation.stale,
        ends_early=bool(operation.until),
        commits=operation.commits,
    )
    client_id = context.source_client_id(job)
    # a renewal that is under way would disconnect the reader; none begins once this is stored
    with context.reserving[client_id], context.writing[client_id]:
        context.records.write(
            context.records.incarnations.put(context.scope, incarnation),
            _reads_again(context, operation),
        )
    submission = context.submission(operation, operation.sink_has_readers, savepoint, secrets)
    late_failure: str | None = None
    try:
        # a duplicate: an earlier try of this start arrived, and is adopted
        with suppress(DuplicateJobError), hiding(secrets):
            late_failure = context.connections.engine_of(operation.job.engine).submit(submission)
    except MainTimeoutError as error:
        _refuse_late_start(context, incarnation, error)
    except EngineRefusedError:
        if not _runs(context, incarnation):
            record_if_void(context, incarnation)
            raise
    event = report_late_failure(context, operation.job, late_failure, secrets)
    return record_accepted(context, incarnation, event)


def _refuse_late_start(context: Context, incarnation: Incarnation, error: MainTimeoutError) -> None:
    """Raise the error of a `main` that has not returned, after its id was used up: whenever it
    returns, the engine refuses its job.

    The incarnation counts as ended by speck, so that no repair runs this `main` again: each would
    hold one more thread of the engine. If the id cannot be fenced now, the start may still arrive,
    and the next plan fences it. Returns if the start has arrived just now.
    """
    try:
        engine = context.connections.engine_of(incarnation.job.engine)
        engine.fence(incarnation.engine_job_id, incarnation.job.artifact_kind)
    except DuplicateJobError:
        return
    except SpeckError:
        raise error from None
    void = replace(incarnation.as_void(), end=EndState.ENDED)
    context.records.write(context.records.incarnations.put(context.scope, void))
    raise error


def _reads_again(context: Context, operation: Start) -> Batch:
    """Mark the session of a reader that comes back to its link after a drain as not drained."""
    records, job = context.records, operation.job
    client_id = context.source_client_id(job)
    session = records.sessions.get(context.scope, client_id, job.source_site)
    if session is None or not (session.drained or session.undrained):
        return {}
    again = replace(session, drained=False, undrained="")
    return records.sessions.put(context.scope, again)


def _list_start_states(
    context: Context, operation: Start, old: Incarnation | None, savepoint: str | None
) -> tuple[UsedState, ...]:
    """All states that this attempt and earlier ones were started from and that may still be stored:
    those of earlier attempts, and those used now, both copy and original."""
    newest = context.find_incarnation(operation.job_name)
    states = {(each.site, each.path): each for each in (newest.left if newest else ())}
    if savepoint is not None and old is not None:
        places = {(operation.site, savepoint)}
        if old.carried is not None and old.carried.location == savepoint:
            places.add((old.job.site, old.carried.origin))
        states |= {place: UsedState(*place, operation.attempt) for place in sorted(places)}
    return tuple(states.values())


def _runs(context: Context, incarnation: Incarnation) -> bool:
    """Whether a refused start had arrived before, when its answer was lost."""
    state = context.connections.engine_of(incarnation.job.engine).status(incarnation.engine_job_id)
    return state is not None and not state.terminal
