"""Ends an incarnation without a savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from speck.deploy.operations.beginnings import put_begun
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import EndState, StartState
from speck.model.job import DesiredState
from speck.model.observation import EngineJob
from speck.model.plan import Cancel, Fence, Stop
from speck.store.tables import Batch


def cancel(context: Context, operation: Cancel | Fence) -> Outcome:
    """End an incarnation at once, without a savepoint."""
    engine = context.connections.engine(operation.site)
    engine.cancel(operation.engine_job_id)

    def is_gone(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(operation.engine_job_id)
        return job is None or job.state.terminal

    return Waiting(
        operation.site,
        is_gone,
        lambda: Done(put_ended(context, operation, None)),
        context.patience.start_s,
        lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
    )


def put_ended(context: Context, operation: Stop | Cancel | Fence, savepoint: str | None) -> Batch:
    """The writes for an incarnation that speck has ended, and for its session."""
    incarnation = context.find_incarnation(operation.job_name)
    assert incarnation is not None
    is_final = not isinstance(operation, Fence) and operation.final
    is_paused = not isinstance(operation, Fence) and operation.pauses
    state = DesiredState.STOPPED if is_paused else DesiredState.RUNNING
    job = replace(incarnation.job, state=state)
    result = replace(incarnation, job=job, end=EndState.ENDED, savepoint=savepoint)
    if savepoint is not None:
        result = replace(result, start=StartState.CONFIRMED, base=None)
    installation = context.records.installation
    context.views.note_end(
        source_client_id(installation, job.job_name, job.source),
        sink_client_id(installation, job.job_name, job.source, job.sink),
    )
    return {
        **context.records.put_incarnation(context.scope, result),
        **put_begun(context, incarnation.job, drained=is_final),
    }
