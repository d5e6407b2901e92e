"""Ends an incarnation without a savepoint, or before it has arrived at its engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import DuplicateJobError
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, StartState
from speck.model.job import Job
from speck.model.observation import EngineJob
from speck.model.plan import Cancel, Fence
from speck.store.tables import Batch


def cancel(context: Context, operation: Cancel | Fence) -> Outcome:
    """End an incarnation at once, without a savepoint."""
    final = isinstance(operation, Cancel) and operation.final
    engine = context.connections.engine(operation.site)
    engine.cancel(operation.engine_job_id)

    def is_gone(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(operation.engine_job_id)
        return job is None or job.state.terminal

    return Waiting(
        operation.site,
        is_gone,
        lambda: Done(put_ended(context, operation.job_name, None, final=final)),
        context.patience.start_s,
        lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
    )


def fence(context: Context, operation: Fence) -> Outcome:
    """Make sure that a submission still on its way never runs."""
    incarnation = context.find_incarnation(operation.job_name)
    assert incarnation is not None
    engine = context.connections.engine(operation.site)
    if engine.status(operation.engine_job_id) is None:
        with suppress(DuplicateJobError):  # it has arrived just now
            engine.fence(operation.engine_job_id)
            void = replace(incarnation, start=StartState.VOID, end=EndState.ENDED)
            return Done(context.records.put_incarnation(context.scope, void))
    return cancel(context, operation)


def put_ended(
    context: Context, job_name: str, savepoint: str | None, *, final: bool = False
) -> Batch:
    """The writes for an incarnation that speck has ended; `final`: its session is drained."""
    incarnation = context.find_incarnation(job_name)
    assert incarnation is not None
    result = replace(incarnation, end=EndState.ENDED, savepoint=savepoint)
    if savepoint is not None:
        result = replace(result, start=StartState.CONFIRMED, base=None)
    batch = context.records.put_incarnation(context.scope, result)
    return {**batch, **_put_drained(context, incarnation.job)} if final else batch


def _put_drained(context: Context, job: Job) -> Batch:
    records = context.records
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(context.scope, client_id, job.source_site)
    if session is None:
        return {}
    return records.put_session(context.scope, replace(session, drained=True))
