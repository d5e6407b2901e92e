"""How what ran before a failed start comes back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.starting import note_if_void, start
from speck.errors import DuplicateJobError, EngineRefusedError
from speck.model.incarnation import EndState, Incarnation, StaleSink, StartState
from speck.model.observation import EngineJob
from speck.model.plan import Return, Start


def come_back(context: Context, operation: Return) -> Outcome:
    """Settle the start that failed, then start what ran before from the newest state.

    That may be the state of the failed incarnation. Raises UnreachableError while the failed
    one's site does not answer: it may run there.
    """
    failed = context.deployed(operation.job_name)
    if failed is None or failed.engine_job_id != operation.failed or failed.void:
        return _start(context, operation)
    engine = context.connections.engine(failed.job.site)
    state = engine.status(failed.engine_job_id)
    if state is None:
        _burn(context, failed)
    elif not state.terminal:
        engine.cancel(failed.engine_job_id)
        return Waiting(
            failed.job.site,
            lambda jobs: _is_over(jobs, failed.engine_job_id),
            lambda: come_back(context, operation),
            context.patience.start_s,
            lambda: f"cannot bring {operation.job_name} back: {failed.job.site} still lists it",
        )
    else:
        _note_end(context, note_if_void(context, failed))
    return _start(context, operation)


def _is_over(jobs: Mapping[str, EngineJob], engine_job_id: str) -> bool:
    job = jobs.get(engine_job_id)
    return job is None or job.state.terminal


def _burn(context: Context, failed: Incarnation) -> None:
    """The engine knows nothing of the start: see to it that it never arrives.

    One that was taken on may have run before its engine forgot it. What it left is found before
    its id is fenced: afterwards the engine knows the id, and says that it completed nothing.
    """
    site = failed.job.site
    left = context.keeper.newest(site, failed.engine_job_id) if failed.accepted else None
    known = replace(failed, savepoint=left.path) if left else failed
    if left is not None:
        context.records.write(context.records.put_incarnation(context.scope, known))
    submission = context.submission(failed, sink_has_readers=True, savepoint=None)
    with suppress(DuplicateJobError):
        context.connections.engine(site).fence(submission)
        _note_end(context, known if left else replace(known, start=StartState.VOID))
        return
    context.records.write(context.records.put_incarnation(context.scope, failed))
    raise EngineRefusedError(f"cannot bring {failed.job.job_name} back: its start has arrived")


def _note_end(context: Context, failed: Incarnation) -> None:
    ended = replace(failed, end=EndState.ENDED)
    context.records.write(context.records.put_incarnation(context.scope, ended))


def _start(context: Context, operation: Return) -> Outcome:
    newest = context.deployed(operation.job_name)
    outcome = start(
        context,
        Start(
            operation.job,
            operation.attempt,
            operation.engine_job_id,
            operation.sink_has_readers,
            operation.keeps_state and newest is not None,
            operation.former_sinks,
            _stale(newest, operation),
        ),
    )
    return _told(context, operation, outcome)


def _stale(newest: Incarnation | None, operation: Return) -> tuple[StaleSink, ...]:
    """What is still to be cleared: not what the job's sink said of the link that it has again."""
    stale = newest.stale if newest is not None else ()
    return tuple(sink for sink in stale if sink.link != operation.job.sink)


def _told(context: Context, operation: Return, outcome: Outcome) -> Outcome:
    """The outcome, with an event once the job is back."""
    if isinstance(outcome, Waiting):
        finish = outcome.finish
        return replace(outcome, finish=lambda: _told(context, operation, finish()))
    event = context.records.event(
        "job",
        f"{operation.job_name} came back as attempt {operation.attempt} on {operation.site}",
        site=operation.site,
        job_name=operation.job_name,
    )
    return Done({**outcome.store, **event}, outcome.afterwards)
