"""How an incarnation begins: stored, sent, taken on, running."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from speck.errors import DuplicateJobError, EngineRefusedError, PermanentError, SpeckError
from speck.inventory import Deployed
from speck.observed import EngineJob, RunState
from speck.operations.context import Context
from speck.operations.outcome import Done, Outcome, Waiting
from speck.operations.states import newest_state
from speck.plan import Start


def start(context: Context, operation: Start) -> Outcome:
    job_id, name = operation.engine_job_id, operation.job_name
    engine = context.connections.engine(operation.site)
    before = context.deployed(name)
    if before is not None and before.engine_job_id == job_id and before.accepted:
        deployed = before  # only what came after that is tried again
    else:
        deployed = submit(context, operation, before)

    seen: list[RunState] = []

    def settled(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(job_id)
        if job is None or not (job.state is RunState.RUNNING or job.state.terminal):
            return False
        seen.append(job.state)
        return True

    def finish() -> Outcome:
        if seen[-1].terminal:
            note_if_void(context, deployed)
            raise PermanentError(f"cannot start {name}: {cause(context, operation, seen[-1])}")
        confirmed = replace(deployed, accepted=False, confirmed=True, base=None)
        return Done(context.records.put_deployed(context.scope, confirmed))

    return Waiting(
        operation.site,
        settled,
        finish,
        context.patience.start_s,
        lambda: f"cannot start {name}: {cause(context, operation, engine.status(job_id))}",
    )


def submit(context: Context, operation: Start, old: Deployed | None) -> Deployed:
    """Write down what is about to be asked, ask, and write down that it was taken on."""
    if old is not None and old.engine_job_id == operation.engine_job_id:
        old = old.base  # this very start was sent before
    savepoint = None
    if operation.restore is not None:
        old, savepoint = newest_state(context, old)
    while old is not None and old.void:
        old = old.base
    deployed = Deployed(
        operation.job,
        operation.attempt,
        operation.engine_job_id,
        base=old,
        former_sinks=operation.former_sinks,
    )
    context.records.write(context.records.put_deployed(context.scope, deployed))
    submission = context.submission(operation, operation.sink_has_readers, savepoint)
    try:
        with suppress(DuplicateJobError):  # an earlier try of this start arrived: adopt it
            context.connections.engine(operation.site).submit(submission)
    except EngineRefusedError:
        note_if_void(context, deployed, savepoint)
        raise
    # From now on that the engine does not know the id says that it has forgotten it.
    deployed = replace(deployed, accepted=True)
    context.records.write(context.records.put_deployed(context.scope, deployed))
    return deployed


def note_if_void(context: Context, deployed: Deployed, savepoint: str | None = None) -> None:
    """Remember that an incarnation which was refused, or has ended, left no state of its
    own: the one before it has the newest. In doubt nothing is noted."""
    engine = context.connections.engine(deployed.job.site)
    with suppress(SpeckError):
        if engine.status(deployed.engine_job_id) is not None:
            found = engine.newest_state(deployed.engine_job_id)
            if found is not None and found.path != savepoint:
                return
        void = replace(deployed, void=True)
        context.records.write(context.records.put_deployed(context.scope, void))


def cause(context: Context, operation: Start, state: RunState | None) -> str:
    if state is None:
        return f"{operation.site} does not know it any more"
    failures = context.connections.engine(operation.site).exceptions(operation.engine_job_id)
    if failures:
        return f"it is {state}: {failures[0].name}"
    return f"it is {state}; see the engine's log at {operation.site}"
