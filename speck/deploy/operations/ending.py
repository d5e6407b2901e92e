"""Ends an incarnation without saving its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from speck.deploy.begun_jobs import is_unheard
from speck.deploy.operations.beginnings import put_begun, record_accepted, record_arrived
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import SpeckError
from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.job import DesiredState
from speck.model.job_operations import Cancel, Fence, Start, Stop
from speck.model.observation import EngineJob


def cancel(context: Context, operation: Cancel | Fence) -> Outcome:
    """End an incarnation at once, without saving its state."""
    return cancel_and_wait(context, operation, lambda: conclude(context, operation, None))


def cancel_and_wait(
    context: Context,
    operation: Start | Stop | Cancel | Fence,
    finish: Callable[[], Done],
    why: str | None = None,
) -> Waiting:
    """Cancel an incarnation, and `finish` once all its tasks have ended. `why`: for a reason other
    than that it is to be cancelled."""
    job_id, name, site = operation.engine_job_id, operation.job_name, operation.site
    context.resends.ask(job_id)
    if isinstance(operation, Start):
        engine = operation.job.engine
    else:
        engine = context.find_engine(name, job_id)
    context.connections.engine_of(engine).cancel(job_id)
    limit_s = context.patience.cancel_s

    def is_gone(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(job_id)
        return job is None or job.state.terminal

    def explain() -> str:
        return (
            f"cannot cancel {name}{f' ({why})' if why else ''}: tasks of it still run after"
            f" {limit_s:.0f} s, since an operator hangs or ignores that it is interrupted; restart"
            f" the engine of {site}, then try again: its other jobs go on from their checkpoints"
        )

    reason = f", since {why}" if why else ""
    return Waiting(
        engine,
        is_gone,
        finish,
        limit_s,
        explain,
        progress=f"cancelling{reason}: waits until all its tasks have ended",
        trouble=why,
    )


def conclude(
    context: Context,
    operation: Stop | Cancel | Fence,
    savepoint: str | None,
    *,
    is_unsaid: bool = False,
) -> Done:
    """The outcome for an incarnation that speck has ended. Its session is stored with it.
    `is_unsaid`: it may not have said what it has taken, or not have published it."""
    incarnation = context.find_incarnation(operation.job_name)
    assert incarnation is not None
    if is_unheard(incarnation):
        incarnation = _settle_start(context, incarnation, savepoint)
    is_final = not isinstance(operation, Fence) and operation.final
    is_paused = not isinstance(operation, Fence) and operation.pauses
    state = DesiredState.STOPPED if is_paused else DesiredState.RUNNING
    job = replace(incarnation.job, state=state)
    result = replace(incarnation, job=job, end=EndState.ENDED, savepoint=savepoint)
    if savepoint is not None:
        result = replace(result, start=StartState.CONFIRMED, base=None)
    if is_unsaid:
        result = result.forgotten()
    context.views.record_end(job.source_site, context.source_client_id(job))
    for link in job.port:
        context.views.record_end(link.site, context.sink_client_id(job, link))
    ended = {
        **context.records.incarnations.put(context.scope, result),
        **context.resends.put_ended(context.scope, result),
    }
    if result.void:  # its id was fenced, or it ended before it took anything
        return Done(ended)
    return Done(
        ended,
        sessions=(context.source_client_id(job),),
        put_sessions=partial(put_begun, context, incarnation.job, drained=is_final),
    )


def _settle_start(context: Context, incarnation: Incarnation, savepoint: str | None) -> Incarnation:
    """The incarnation, which no answer has told to have begun, now that it is over."""
    engine, state = context.connections.engine_of(incarnation.job.engine), None
    if savepoint is None:
        with suppress(SpeckError):
            state = engine.status(incarnation.engine_job_id)
    if state is None:  # it has saved its state, or was listed until its engine lost it
        return record_accepted(context, incarnation)
    return record_arrived(context, incarnation, state)
