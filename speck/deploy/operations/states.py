"""Where the newest state of a job is."""

from __future__ import annotations

from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.errors import EngineRefusedError, PermanentError
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.spec.job_contract import reports_numbers

STATELESS = "set `upgrade: stateless` to start it without state"


def newest_state(
    context: Context, deployed: Incarnation | None
) -> tuple[Incarnation | None, str | None]:
    """The incarnation (this one or one before it) that left the newest state, and where.

    Inputs are acknowledged at checkpoints only: the one before counts if this one is known
    to have completed none. The engine's word comes first; where it does not know the job any
    more, the folders of its site are listed. Raises PermanentError when the newest state cannot
    be established, or that of an incarnation that ran cannot be found; UnreachableError while
    whoever would know does not answer.
    """
    if deployed is None or deployed.savepoint is not None:
        return deployed, deployed.savepoint if deployed else None
    if deployed.void:
        return newest_state(context, deployed.base)
    engine = context.connections.engine(deployed.job.site)
    if not deployed.confirmed and engine.status(deployed.engine_job_id) is None:
        return _listed(context, deployed, None)
    try:
        found = engine.newest_state(deployed.engine_job_id)
    except EngineRefusedError as error:
        return _listed(context, deployed, error)
    if found is not None:
        return replace(deployed, base=None), found.path
    if deployed.confirmed or deployed.base is None:
        return deployed, None
    return newest_state(context, deployed.base)


def _listed(
    context: Context, deployed: Incarnation, refusal: EngineRefusedError | None
) -> tuple[Incarnation | None, str | None]:
    """As `newest_state`, of an incarnation of which the engine knows nothing (any more)."""
    name, site = deployed.job.job_name, deployed.job.site
    cannot = f"cannot start {name} from its newest state:"
    try:
        found = context.keeper.newest(site, deployed.engine_job_id)
    except PermanentError as error:
        if refusal is None:
            raise PermanentError(
                f"{cannot} whether its attempt {deployed.attempt} ran cannot be established, since"
                f" {site} does not know it (any more): {error}; or {STATELESS}"
            ) from error
        raise PermanentError(
            f"{cannot} {site} knows none of its attempt {deployed.attempt} ({refusal}): {error};"
            f" or {STATELESS}"
        ) from refusal
    if found is not None:
        return replace(deployed, base=None), found.path
    # It completed nothing that is still there: what it began with is its newest state, unless
    # it has acknowledged something since, and that is gone.
    if deployed.base is not None and not deployed.confirmed:
        return newest_state(context, deployed.base)
    if deployed.restored is not None:
        return replace(deployed, base=None), deployed.restored
    if _has_taken(context, deployed):
        raise PermanentError(
            f"{cannot} {site} does not know its attempt {deployed.attempt} any more, and no"
            f" checkpoint of it lies there though it ran: its state is gone; {STATELESS}"
        ) from refusal
    return deployed, None


def _has_taken(context: Context, deployed: Incarnation) -> bool:
    """Whether a job that began without state may have acknowledged anything: a reader of ours
    tells at each checkpoint what it has taken; of another nothing is known."""
    job = deployed.job
    if not reports_numbers(job):
        return True
    client_id = source_client_id(context.records.installation, job.job_name, job.source)
    return client_id in context.connections.broker(job.source_site).view().taken
