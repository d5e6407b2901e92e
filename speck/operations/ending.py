"""How an incarnation ends: with a savepoint, at once, or before it has arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from speck.errors import DuplicateJobError, PermanentError
from speck.observed import EngineJob
from speck.operations.context import Context
from speck.operations.outcome import Done, Outcome, Waiting
from speck.plan import Cancel, Settle, Stop
from speck.records import Batch


def stop(context: Context, operation: Stop) -> Outcome:
    trigger = hashlib.sha256(f"stop|{operation.engine_job_id}".encode()).hexdigest()[:32]
    folder = context.keeper.folder(operation.site)
    target = (
        f"{folder.rstrip('/')}/savepoints/{operation.job_name}/{operation.engine_job_id}"
        if folder
        else None
    )
    engine = context.connections.engine(operation.site)
    engine.stop(operation.engine_job_id, target, trigger)
    asked = [context.clock.monotonic()]

    def ready(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(operation.engine_job_id)
        if job is None or job.state.terminal:
            return True
        return context.clock.monotonic() - asked[0] > _ASK_AGAIN_S

    def finish() -> Outcome:
        asked[0] = context.clock.monotonic()
        progress = engine.savepoint_progress(operation.engine_job_id, trigger)
        if not progress.done:
            return waiting
        if progress.location is None:
            raise PermanentError(
                f"cannot stop {operation.job_name} with a savepoint: {progress.failure}"
            )
        return Done(ended(context, operation.job_name, progress.location))

    waiting = Waiting(
        operation.site,
        ready,
        finish,
        context.patience.stop_s,
        lambda: f"cannot stop {operation.job_name}: its savepoint did not finish in time",
    )
    return waiting


def cancel(context: Context, operation: Cancel | Settle) -> Outcome:
    engine = context.connections.engine(operation.site)
    engine.cancel(operation.engine_job_id)

    def gone(jobs: Mapping[str, EngineJob]) -> bool:
        job = jobs.get(operation.engine_job_id)
        return job is None or job.state.terminal

    return Waiting(
        operation.site,
        gone,
        lambda: Done(ended(context, operation.job_name, None)),
        context.patience.start_s,
        lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
    )


def settle(context: Context, operation: Settle) -> Outcome:
    deployed = context.deployed(operation.job_name)
    assert deployed is not None
    engine = context.connections.engine(operation.site)
    if engine.status(operation.engine_job_id) is None:
        with suppress(DuplicateJobError):  # it has arrived just now
            engine.burn(context.submission(deployed, sink_has_readers=True, savepoint=None))
            burnt = replace(deployed, ended=True, void=True)
            return Done(context.records.put_deployed(context.scope, burnt))
    return cancel(context, operation)


def ended(context: Context, job_name: str, savepoint: str | None) -> Batch:
    deployed = context.deployed(job_name)
    assert deployed is not None
    ended = replace(deployed, ended=True, savepoint=savepoint)
    if savepoint is not None:
        ended = replace(ended, confirmed=True, base=None)
    return context.records.put_deployed(context.scope, ended)


_ASK_AGAIN_S = 1.0
