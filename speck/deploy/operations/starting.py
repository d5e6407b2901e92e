"""How an incarnation begins: stored, sent, taken on, running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from speck.deploy.operations.connecting import source_connected
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.state_transfer import bring
from speck.errors import DuplicateJobError, EngineRefusedError, PermanentError, SpeckError
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, StartState, UsedState
from speck.model.observation import EngineJob, RunState
from speck.model.plan import Start
from speck.store.tables import Batch


def start(context: Context, operation: Start) -> Outcome:
    """Start the incarnation from the newest state there is now, and see all its tasks run."""
    old = context.deployed(operation.job_name)
    if old is not None and old.engine_job_id == operation.engine_job_id:
        if old.accepted:
            return _until_it_runs(context, operation, old)  # only what came after is tried again
        old = old.base  # this very start was sent before: it may hold its session
    else:
        _see_session(context, operation, old)

    def go(found: Incarnation | None, savepoint: str | None) -> Outcome:
        _refuse_a_second(context, old)
        return _until_it_runs(context, operation, _submit(context, operation, found, savepoint))

    if not operation.keeps_state:
        return go(old, None)
    return bring(context, old, operation.site, go)


def _see_session(context: Context, operation: Start, old: Incarnation | None) -> None:
    """See that the reserved session of a reader is still there before it is first used.

    A broker that is killed soon after a reservation forgets it. Where nobody else reads the link
    its sinks wait for the reader; else they take the others for all. They are asked to send once
    more what they sent since. If the reader is to go on where another one ended, that one, whose
    session is older, has to take first what came since. Raises PermanentError then; the plan
    after this one lets it.
    """
    job, records, scope = operation.job, context.records, context.scope
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(scope, client_id, job.source_site)
    while old is not None:  # an incarnation that reads the link may hold it
        if old.job.source == job.source and not old.void:
            return
        old = old.base
    others = [s for s in records.sessions(scope) if s.link == job.source]
    others = [s for s in others if s.client_id != client_id]
    if session is None or not others:
        return
    broker = context.connections.broker(job.source_site)
    if broker.reserve(client_id, job.source.topic):
        return
    former = next((s for s in others if s.client_id == session.former), None)
    if former is None:
        broker.ask_again(job.source.topic)
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
    """Raise PermanentError if an incarnation before this one runs, though it had ended or was
    gone when the plan was made: an engine may bring its jobs back after a restart."""
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
    """Write down what is about to be asked, ask, and write down that it was taken on.

    `old` is the incarnation whose state is the newest; `savepoint` where the site reads it.
    """
    while old is not None and old.void:
        old = old.base
    deployed = Incarnation(
        operation.job,
        operation.attempt,
        operation.engine_job_id,
        base=old,
        former_sinks=operation.former_sinks,
        restored=savepoint,
        left=_left(context, operation, old, savepoint),
        stale=operation.stale,
    )
    context.records.write(
        context.records.put_incarnation(context.scope, deployed), _reads_again(context, operation)
    )
    submission = context.submission(operation, operation.sink_has_readers, savepoint)
    try:
        with suppress(DuplicateJobError):  # an earlier try of this start arrived: adopt it
            context.connections.engine(operation.site).submit(submission)
    except EngineRefusedError:
        if not _runs(context, deployed):
            note_if_void(context, deployed)
            raise
    # From now on that the engine does not know the id says that it has forgotten it.
    deployed = replace(deployed, start=StartState.ACCEPTED)
    context.records.write(context.records.put_incarnation(context.scope, deployed))
    return deployed


def _reads_again(context: Context, operation: Start) -> Batch:
    """A reader that was drained and comes back to its link reads on."""
    records, job = context.records, operation.job
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(context.scope, client_id, job.source_site)
    if session is None or not session.drained:
        return {}
    return records.put_session(context.scope, replace(session, drained=False))


def _left(
    context: Context, operation: Start, old: Incarnation | None, savepoint: str | None
) -> tuple[UsedState, ...]:
    """All states that this attempt and those before it were started from and that still lie
    somewhere: those of before, and what this one uses, copy and original."""
    known = context.deployed(operation.job_name)
    left = {(each.site, each.path): each for each in (known.left if known else ())}
    if savepoint is not None and old is not None:
        used = {(operation.site, savepoint)}
        if old.carried is not None and old.carried.location == savepoint:
            used.add((old.job.site, old.carried.origin))
        left |= {place: UsedState(*place, operation.attempt) for place in sorted(used)}
    return tuple(left.values())


def _until_it_runs(context: Context, operation: Start, deployed: Incarnation) -> Outcome:
    job_id, name = operation.engine_job_id, operation.job_name
    engine = context.connections.engine(operation.site)
    state: RunState | None = None
    missing_since: float | None = None
    began = context.clock.monotonic()

    def settled(jobs: Mapping[str, EngineJob]) -> bool:
        nonlocal state, missing_since
        job, now = jobs.get(job_id), context.clock.monotonic()
        if job is None:  # it took the job on: it lists it soon, or it has forgotten it
            state, missing_since = None, missing_since or now
            return now - missing_since > context.patience.forgotten_s
        state, missing_since = job.state, None
        return state is RunState.RUNNING or state.terminal

    def finish() -> Outcome:
        if state is None or state.terminal:
            note_if_void(context, deployed)
            raise PermanentError(f"cannot start {name}: {_cause(context, operation, state)}")
        took = context.clock.monotonic() - began
        if took > context.patience.connect_s and not _is_connected(context, operation):
            left_s = context.patience.start_s - took
            return replace(waiting, ready=later(), limit_s=left_s, overdue=lambda: away)
        return _confirmed(context, deployed)

    def later() -> Callable[[Mapping[str, EngineJob]], bool]:
        asked = context.clock.monotonic()
        return lambda jobs: (
            context.clock.monotonic() - asked > context.patience.stop_poll_s and settled(jobs)
        )

    away = (
        f"cannot start {name}: all its tasks run at {operation.site}, but its source is not"
        f" connected to {operation.job.source.broker}"
    )
    waiting = Waiting(
        operation.site,
        settled,
        finish,
        context.patience.start_s,
        lambda: f"cannot start {name}: {_cause(context, operation, engine.status(job_id))}",
    )
    return waiting


def _is_connected(context: Context, operation: Start) -> bool:
    """Whether the source takes input, as far as the engine's figures tell. Tasks of our
    connector run once they are subscribed, or after ten seconds without. A broker that does not
    answer is no fault of the incarnation."""
    try:
        context.connections.broker(operation.job.source_site).reach()
        engine = context.connections.engine(operation.site)
        figures = engine.metrics(operation.engine_job_id)
    except SpeckError:
        return True
    return source_connected(figures)


def _confirmed(context: Context, deployed: Incarnation) -> Done:
    """All tasks run: the states that attempts before the last one were started from can go."""
    newest = sorted({left.attempt for left in deployed.left})[-_STATES_KEPT:]
    # where sites share storage one path stands for the same state, whatever the site
    needed = {left.path for left in deployed.left if left.attempt in newest}
    kept = tuple(left for left in deployed.left if left.path in needed)
    gone = [left for left in deployed.left if left.path not in needed]
    confirmed = replace(deployed, start=StartState.CONFIRMED, base=None, left=kept)

    def afterwards() -> None:
        context.refills.begin(confirmed)
        for left in gone:
            with suppress(SpeckError):  # it only takes room
                context.keeper.drop(left.site, left.path)

    return Done(context.records.put_incarnation(context.scope, confirmed), afterwards)


def _runs(context: Context, deployed: Incarnation) -> bool:
    """Whether a refused start is one that arrived before, when its answer was lost."""
    state = context.connections.engine(deployed.job.site).status(deployed.engine_job_id)
    return state is not None and not state.terminal


def note_if_void(context: Context, deployed: Incarnation) -> Incarnation:
    """Remember that an incarnation which was refused, or has ended, left no state of its
    own: the one before it has the newest. In doubt nothing is noted."""
    engine = context.connections.engine(deployed.job.site)
    with suppress(SpeckError):
        state = engine.status(deployed.engine_job_id)
        if state is not None and not state.terminal:
            return deployed
        if state is None and deployed.accepted:  # it has run, and its engine forgot it since
            return deployed
        if state is not None:
            found = engine.newest_state(deployed.engine_job_id)
            if found is not None and found.path != deployed.restored:
                return deployed
        deployed = replace(deployed, start=StartState.VOID)
        context.records.write(context.records.put_incarnation(context.scope, deployed))
    return deployed


def _cause(context: Context, operation: Start, state: RunState | None) -> str:
    if state is None:
        return f"{operation.site} does not know it any more"
    failures = context.connections.engine(operation.site).exceptions(operation.engine_job_id)
    if failures:
        return f"it is {state}: {failures[0].name}"
    return f"it is {state}; see the engine's log at {operation.site}"


_STATES_KEPT = 2
