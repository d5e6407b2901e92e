"""Finds the newest state of a job."""

from __future__ import annotations

from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.errors import EngineRefusedError, PermanentError
from speck.model.incarnation import Incarnation
from speck.spec.job_contract import reports_numbers

STATELESS = "set `upgrade: stateless` to start it without state"


def newest_state(
    context: Context, incarnation: Incarnation | None
) -> tuple[Incarnation | None, str | None]:
    """The incarnation (this one or an earlier one) that left the newest state, and its path.

    Inputs are acknowledged at checkpoints only: an earlier incarnation counts if this one is known
    to have completed no checkpoint. The engine is asked first; if it does not know the job any
    more, the folders of its site are listed. Raises PermanentError when the newest state cannot be
    established, or when that of an incarnation that ran cannot be found; UnreachableError while the
    site that would know does not answer.
    """
    if incarnation is not None and incarnation.finished:
        return incarnation, None  # with the state of its end it would only end again
    if incarnation is None or incarnation.savepoint is not None:
        return incarnation, incarnation.savepoint if incarnation else None
    if incarnation.void:
        return newest_state(context, incarnation.base)
    engine = context.connections.engine_of(incarnation.job.engine)
    if not incarnation.confirmed and engine.status(incarnation.engine_job_id) is None:
        return _find_in_folders(context, incarnation, None)
    try:
        state = engine.newest_state(incarnation.engine_job_id)
    except EngineRefusedError as error:
        return _find_in_folders(context, incarnation, error)
    if state is not None:
        return replace(incarnation, base=None), state.location
    if incarnation.confirmed or incarnation.base is None:
        return incarnation, None
    return newest_state(context, incarnation.base)


def _find_in_folders(
    context: Context, incarnation: Incarnation, refusal: EngineRefusedError | None
) -> tuple[Incarnation | None, str | None]:
    """Find the newest state of an incarnation that the engine does not know (any more)."""
    name, site, own = incarnation.job.job_name, incarnation.job.site, incarnation.checkpoints
    cannot = f"cannot start {name} from its newest state:"
    try:
        state = context.keeper.newest(incarnation.job.engine, incarnation.engine_job_id, own)
        if state is None and own is not None:
            raise PermanentError(
                f"its main has set {own} for its checkpoints, and none is found there now"
            )
    except PermanentError as error:
        if refusal is None:
            raise PermanentError(
                f"{cannot} whether its attempt {incarnation.attempt} ran cannot be established,"
                f" since {site} does not know it (any more): {error}; or {STATELESS}"
            ) from error
        raise PermanentError(
            f"{cannot} {site} knows none of its attempt {incarnation.attempt} ({refusal}): {error};"
            f" or {STATELESS}"
        ) from refusal
    if state is not None:
        return replace(incarnation, base=None), state.location
    # No checkpoint of it exists: the state that it was restored from is its newest state, unless
    # it has acknowledged messages since, whose state is then lost.
    if incarnation.base is not None and not incarnation.confirmed:
        return newest_state(context, incarnation.base)
    if incarnation.restored is not None:
        return replace(incarnation, base=None), incarnation.restored
    if _has_taken(context, incarnation):
        raise PermanentError(
            f"{cannot} {site} does not know its attempt {incarnation.attempt} any more, and no"
            f" checkpoint of it lies there though it ran: its state is gone, unless its main sets"
            " a checkpoint folder of its own, and the engine ended before it reported that;"
            f" {STATELESS}"
        ) from refusal
    return incarnation, None


def _has_taken(context: Context, incarnation: Incarnation) -> bool:
    """Whether a job that started without state may have acknowledged messages. Our readers report
    at each checkpoint what they have taken; a foreign reader reports nothing. In a log each reader
    has a place: it has taken something once that is behind where its session began."""
    job = incarnation.job
    if not reports_numbers(job):
        return True
    client_id = context.source_client_id(job)
    view = context.views.view(job.source_site, (client_id,))
    position = view.find_position(client_id, job.source.topic)
    if position is None:
        return client_id in view.taken
    session = context.find_session(job)
    began = {(part, epoch): n for part, epoch, n in session.since} if session else {}
    return any(number > began.get(part, 0) for part, number in position.items())
