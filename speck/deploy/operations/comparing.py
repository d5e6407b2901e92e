"""Compares what a program's `main` decides with its job's description; reports differences."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from speck.binding import EngineCapability, Trial
from speck.deploy.operations.context import Context, hide
from speck.errors import PermanentError, SpeckError
from speck.model.incarnation import Incarnation
from speck.model.job import Job
from speck.store.tables import Batch


def compare_trial(context: Context, job: Job, trial: Trial) -> Batch:
    """An event about what the trial of `main` showed. Raises PermanentError if the job would need
    more slots than its site has: before anything stops."""
    if not trial.has_built:
        return _event(
            context,
            job,
            "its main built no job when it was tried: it never calls execute(), or catches what"
            " execute() throws; whether it starts a job shows when it is started",
        )
    if (why := _explain_too_wide(context, job, trial.parallelism)) is not None:
        raise PermanentError(f"cannot start {job.job_name}: {why}")
    return {}


def explain_too_wide(context: Context, incarnation: Incarnation) -> str | None:
    """Why a job that has been submitted will never get its slots; None if it may."""
    return _explain_too_wide(context, incarnation.job, _find_parallelism(context, incarnation))


def report_differences(context: Context, incarnation: Incarnation) -> None:
    """Write an event for each way in which a running job differs from what its description
    promises."""
    job = incarnation.job
    parallelism = _find_parallelism(context, incarnation)
    if parallelism is not None and parallelism > job.parallelism:
        context.records.write(_event(context, job, f"{_differ(job, parallelism)}; describe it so"))
    if _takes_no_checkpoints(context, incarnation):
        message = (
            "it takes no checkpoints: its input is never acknowledged, and is read again after a"
            " restart, and its state is lost with its engine; enable them in its main, or at"
            f" {job.site}"
        )
        context.records.write(_event(context, job, message))


def report_late_failure(
    context: Context, job: Job, failure: str | None, secrets: Mapping[str, str]
) -> Batch:
    """An event about a `main` that failed after it had started its job."""
    if failure is None:
        return {}
    return _event(
        context,
        job,
        f"its main failed after it had started the job, which runs: {hide(failure, secrets)};"
        " a second job that main builds does not run: make it a job of its own",
    )


def _find_parallelism(context: Context, incarnation: Incarnation) -> int | None:
    with suppress(SpeckError):
        engine = context.connections.engine_of(incarnation.job.engine)
        nodes = engine.job_plan(incarnation.engine_job_id)
        return max((node.parallelism for node in nodes), default=None)
    return None


def _takes_no_checkpoints(context: Context, incarnation: Incarnation) -> bool:
    engine = context.connections.engine_of(incarnation.job.engine)
    if EngineCapability.STATE not in engine.capabilities:
        return False
    with suppress(SpeckError):
        checkpointing = engine.checkpointing(incarnation.engine_job_id)
        return checkpointing is not None and checkpointing.interval_s is None
    return False


def _explain_too_wide(context: Context, job: Job, parallelism: int | None) -> str | None:
    if parallelism is None or parallelism <= job.parallelism:
        return None
    with suppress(SpeckError):
        slots = context.connections.engine_of(job.engine).view().slots
        if slots is not None and parallelism > slots.total:
            return (
                f"{_differ(job, parallelism)}, and {job.site} has {slots.total} slots; leave the"
                " parallelism to the description"
            )
    return None


def _differ(job: Job, parallelism: int) -> str:
    return (
        f"its main sets parallelism {parallelism} itself, and the description says"
        f" {job.parallelism}"
    )


def _event(context: Context, job: Job, message: str) -> Batch:
    return context.records.events.make(
        "job", f"{job.job_name}: {message}", site=job.site, job_name=job.job_name
    )
