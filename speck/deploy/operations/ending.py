"""How an incarnation ends at once, or before it has arrived."""

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
    """End it at once; nobody asks for its state."""
    final = isinstance(operation, Cancel) and operation.final
    engine = context.connections.engine(operation.site)
    engine.cancel(operation.engine_job_id)

    def gone(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(operation.engine_job_id)
        return job is None or job.state.terminal

    return Waiting(
        operation.site,
        gone,
        lambda: Done(ended(context, operation.job_name, None, final=final)),
        context.patience.start_s,
        lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
    )


def fence(context: Context, operation: Fence) -> Outcome:
    """See to it that what may still arrive never runs."""
    deployed = context.deployed(operation.job_name)
    assert deployed is not None
    engine = context.connections.engine(operation.site)
    if engine.status(operation.engine_job_id) is None:
        with suppress(DuplicateJobError):  # it has arrived just now
            engine.fence(context.submission(deployed, sink_has_readers=True, savepoint=None))
            fenced = replace(deployed, start=StartState.VOID, end=EndState.ENDED)
            return Done(context.records.put_incarnation(context.scope, fenced))
    return cancel(context, operation)


def ended(context: Context, job_name: str, savepoint: str | None, *, final: bool = False) -> Batch:
    """What to store of an incarnation that speck has ended; `final`: its session is drained."""
    deployed = context.deployed(job_name)
    assert deployed is not None
    ended = replace(deployed, end=EndState.ENDED, savepoint=savepoint)
    if savepoint is not None:
        ended = replace(ended, start=StartState.CONFIRMED, base=None)
    stored = context.records.put_incarnation(context.scope, ended)
    return {**stored, **_drained(context, deployed.job)} if final else stored


def _drained(context: Context, job: Job) -> Batch:
    records = context.records
    client_id = source_client_id(records.installation, job.job_name, job.source)
    session = records.session(context.scope, client_id, job.source_site)
    if session is None:
        return {}
    return records.put_session(context.scope, replace(session, drained=True))
