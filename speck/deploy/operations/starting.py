"""Starts an incarnation: store it, submit it, wait until it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from speck.deploy.operations.connecting import explain_disconnection, source_connected
from speck.deploy.operations.context import Context, hiding
from speck.deploy.operations.ending import put_begun
from speck.deploy.operations.links import note_owed
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.state_transfer import bring
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    MainTimeoutError,
    PermanentError,
    SpeckError,
)
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import EndState, Incarnation, StartState, UsedState
from speck.model.observation import EngineJob, RunState
from speck.model.plan import Start
from speck.store.tables import Batch


def start(context: Context, operation: Start) -> Outcome:
    """Start the incarnation from the newest state there is now, and wait until all its tasks
    run."""
    old = context.find_incarnation(operation.job_name)
    if old is not None and old.engine_job_id == operation.engine_job_id:
        if old.accepted:
            return _wait_until_it_runs(context, operation, old)  # only the wait is repeated
        old = old.base  # this very start was sent before: it may hold its session
    else:
        _check_session(context, operation, old)

    def submit(source: Incarnation | None, savepoint: str | None) -> Outcome:
        _refuse_a_second(context, old)
        return _wait_until_it_runs(
            context, operation, _submit(context, operation, source, savepoint)
        )

    if not operation.keeps_state:
        _note_last_epoch(context, old)
        return submit(old, None)
    return bring(context, old, operation.site, submit)


def _note_last_epoch(context: Context, old: Incarnation | None) -> None:
    """Store the last numbers of a job that starts without its state, and so numbers anew, with the
    sessions of readers outside speck: these report nothing by which the messages would be known."""
    if old is None:
        return
    job, records = old.job, context.records
    readers = [s for s in records.sessions_on_link(context.scope, job.sink) if s.job_name is None]
    own = sink_client_id(records.installation, job.job_name, job.source)
    names = tuple(session.client_id for session in readers)
    note_owed(context, job.sink_site, job.sink, (*old.former_sinks, own), names)


def _check_session(context: Context, operation: Start, old: Incarnation | None) -> None:
    """Check, before its first use, that a reader's reserved session still exists.

    A broker that is killed soon after a reservation forgets it. If no other reader is on the link,
    its sinks wait for this reader. Otherwise the others' sessions get the messages, and with the
    reservation the sinks are asked to send again what they sent since. If the reader is to
    continue where another one ended, the other reader, whose session is older, first has to take
    what came since. PermanentError is raised then, and the next plan lets it do so.
    """
    job, records, scope = operation.job, context.records, context.scope
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(scope, client_id, job.source_site)
    while old is not None:  # an incarnation that reads the link may use it
        if old.job.source == job.source and not old.void:
            return
        old = old.base
    others = [s for s in records.sessions_on_link(scope, job.source) if s.client_id != client_id]
    if session is None or not others:
        return
    broker = context.connections.broker(job.source_site)
    if broker.reserve(client_id, job.source.topic):
        return
    former = next((s for s in others if s.client_id == session.former), None)
    if former is None:
        return
    lost = replace(session, reserved=False, follows=former.client_id, former=None)
    records.write(
        {
            **records.put_session(scope, lost),
            **records.put_session(scope, replace(former, followed_by=None)),
        }
    )
    raise PermanentError(
        f"cannot start {job.job_name}: the broker of {job.source_site} has lost its session on"
        f" {job.source.topic} since it was reserved; apply again: {former.job_name} then takes"
        " what came meanwhile"
    )


def _refuse_a_second(context: Context, old: Incarnation | None) -> None:
    """Raise PermanentError if an earlier incarnation runs though it had ended or was gone when the
    plan was made: an engine may bring its jobs back after a restart."""
    while old is not None:
        if not (old.ended or old.void):
            state = context.connections.engine(old.job.site).status(old.engine_job_id)
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
    secrets = context.read_secrets(operation.job)
    while old is not None and old.void:
        old = old.base
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
    )
    context.records.write(
        context.records.put_incarnation(context.scope, incarnation),
        _reads_again(context, operation),
    )
    submission = context.submission(operation, operation.sink_has_readers, savepoint, secrets)
    try:
        # a duplicate: an earlier try of this start arrived, and is adopted
        with suppress(DuplicateJobError), hiding(secrets):
            context.connections.engine(operation.site).submit(submission)
    except MainTimeoutError as error:
        _refuse_late_start(context, incarnation, error)
    except EngineRefusedError:
        if not _runs(context, incarnation):
            note_if_void(context, incarnation)
            raise
    # From now on, an engine that does not know the id has forgotten the job.
    incarnation = replace(incarnation, start=StartState.ACCEPTED)
    with context.noting:
        context.records.write(
            context.records.put_incarnation(context.scope, incarnation),
            put_begun(context, operation.job),
        )
    return incarnation


def _refuse_late_start(context: Context, incarnation: Incarnation, error: MainTimeoutError) -> None:
    """Raise the error of a `main` that has not returned, after its id was used up: whenever it
    returns, the engine refuses its job.

    The incarnation counts as ended by speck, so that no repair runs this `main` again: each would
    hold one more thread of the engine. If the id cannot be fenced now, the start may still arrive,
    and the next plan fences it. Returns if the start has arrived just now.
    """
    try:
        context.connections.engine(incarnation.job.site).fence(incarnation.engine_job_id)
    except DuplicateJobError:
        return
    except SpeckError:
        raise error from None
    void = replace(incarnation, start=StartState.VOID, end=EndState.ENDED)
    context.records.write(context.records.put_incarnation(context.scope, void))
    raise error


def _reads_again(context: Context, operation: Start) -> Batch:
    """Mark the session of a drained reader that comes back to its link as not drained."""
    records, job = context.records, operation.job
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(context.scope, client_id, job.source_site)
    if session is None or not session.drained:
        return {}
    return records.put_session(context.scope, replace(session, drained=False))


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


def _wait_until_it_runs(context: Context, operation: Start, incarnation: Incarnation) -> Outcome:
    job_id, name = operation.engine_job_id, operation.job_name
    engine = context.connections.engine(operation.site)
    state: RunState | None = None
    missing_since: float | None = None
    began = context.clock.monotonic()

    def is_settled(jobs: Mapping[str, EngineJob]) -> bool:
        nonlocal state, missing_since
        job, now = jobs.get(job_id), context.clock.monotonic()
        if job is None:  # accepted: the engine lists it soon, or has forgotten it
            state, missing_since = None, missing_since or now
            return now - missing_since > context.patience.forgotten_s
        state, missing_since = job.state, None
        return state is RunState.RUNNING or state.terminal

    def finish() -> Outcome:
        if state is None or state.terminal:
            note_if_void(context, incarnation)
            raise PermanentError(f"cannot start {name}: {_explain_end(context, operation, state)}")
        took = context.clock.monotonic() - began
        if took > context.patience.connect_s and not _is_connected(context, operation):
            left_s = context.patience.start_s - took
            problem = explain_disconnection(engine, job_id)
            because = f"{away}: {problem}" if problem else away
            return replace(
                waiting,
                ready=later(),
                limit_s=left_s,
                overdue=lambda: because,
                progress=problem,
            )
        return _confirm(context, incarnation)

    def later() -> Callable[[Mapping[str, EngineJob]], bool]:
        polled_at = context.clock.monotonic()
        return lambda jobs: (
            context.clock.monotonic() - polled_at > context.patience.stop_poll_s
            and is_settled(jobs)
        )

    away = (
        f"cannot start {name}: all its tasks run at {operation.site}, but its source is not"
        f" connected to {operation.job.source.broker}"
    )
    waiting = Waiting(
        operation.site,
        is_settled,
        finish,
        context.patience.start_s,
        lambda: f"cannot start {name}: {_explain_end(context, operation, engine.status(job_id))}",
    )
    return waiting


def _is_connected(context: Context, operation: Start) -> bool:
    """Whether the source takes input, by the engine's metrics. Tasks of our connector are running
    once they have subscribed, or after ten seconds without. A broker that does not answer is no
    failure of the incarnation."""
    try:
        context.connections.broker(operation.job.source_site).reach()
        engine = context.connections.engine(operation.site)
        figures = engine.metrics(operation.engine_job_id)
    except SpeckError:
        return True
    return source_connected(figures)


def _confirm(context: Context, incarnation: Incarnation) -> Done:
    """Store that all tasks run. States that attempts before the last one were started from are
    deleted."""
    newest = sorted({state.attempt for state in incarnation.left})[-_STATES_KEPT:]
    # sites that share storage have the same state under the same path
    paths = {state.path for state in incarnation.left if state.attempt in newest}
    states = tuple(state for state in incarnation.left if state.path in paths)
    obsolete = [state for state in incarnation.left if state.path not in paths]
    result = replace(incarnation, start=StartState.CONFIRMED, base=None, left=states)

    def afterwards() -> None:
        context.refills.begin(result)
        for state in obsolete:
            with suppress(SpeckError):  # a leftover only takes space
                context.keeper.drop(state.site, state.path)

    return Done(context.records.put_incarnation(context.scope, result), afterwards)


def _runs(context: Context, incarnation: Incarnation) -> bool:
    """Whether a refused start had arrived before, when its answer was lost."""
    state = context.connections.engine(incarnation.job.site).status(incarnation.engine_job_id)
    return state is not None and not state.terminal


def note_if_void(context: Context, incarnation: Incarnation) -> Incarnation:
    """Mark an incarnation that was refused, or has ended, as void if it left no state of its own:
    the one before it has the newest state. When in doubt it is left unmarked."""
    engine = context.connections.engine(incarnation.job.site)
    with suppress(SpeckError):
        state = engine.status(incarnation.engine_job_id)
        if state is not None and not state.terminal:
            return incarnation
        if state is None and incarnation.accepted:  # it ran, and its engine has forgotten it
            return incarnation
        if state is not None:
            state_found = engine.newest_state(incarnation.engine_job_id)
            if state_found is not None and state_found.path != incarnation.restored:
                return incarnation
        incarnation = replace(incarnation, start=StartState.VOID)
        context.records.write(context.records.put_incarnation(context.scope, incarnation))
    return incarnation


def _explain_end(context: Context, operation: Start, state: RunState | None) -> str:
    if state is None:
        return f"{operation.site} does not know it any more"
    failures = context.connections.engine(operation.site).exceptions(operation.engine_job_id)
    if failures:
        return f"it is {state}: {failures[0].name}"
    return f"it is {state}; see the engine's log at {operation.site}"


_STATES_KEPT = 2
