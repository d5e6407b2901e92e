"""Ends an incarnation whose start had no answer: it may have arrived at its engine, or may yet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from speck.binding import EngineCapability
from speck.deploy.operations.beginnings import refuse_forgotten_run
from speck.deploy.operations.context import Context
from speck.deploy.operations.ending import cancel
from speck.deploy.operations.outcome import Done, Outcome
from speck.deploy.operations.stopping import Stopping
from speck.errors import DuplicateJobError
from speck.model.incarnation import EndState
from speck.model.job_operations import Fence


def fence(context: Context, operation: Fence) -> Outcome:
    """Make sure that a submission still on its way never runs.

    If it has arrived, it is a job like any other: it has published since its last checkpoint, and
    would publish that again if it was cancelled.
    """
    incarnation = context.find_incarnation(operation.job_name)
    assert incarnation is not None
    engine = context.connections.engine_of(incarnation.job.engine)
    if engine.status(operation.engine_job_id) is None:
        refuse_forgotten_run(context, incarnation)
        with suppress(DuplicateJobError):  # it has arrived just now
            engine.fence(operation.engine_job_id, incarnation.job.artifact_kind)
            void = replace(incarnation.as_void(), end=EndState.ENDED)
            return Done(context.records.incarnations.put(context.scope, void))
    if EngineCapability.STATE not in engine.capabilities:
        return cancel(context, operation)
    return Stopping(context, operation).begin()
