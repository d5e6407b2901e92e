"""Where the newest state of a job is."""

from __future__ import annotations

from dataclasses import replace

from speck.errors import EngineRefusedError, PermanentError
from speck.inventory import Deployed
from speck.operations.context import Context


def newest_state(context: Context, deployed: Deployed | None) -> tuple[Deployed | None, str | None]:
    """The incarnation (this one or one before it) that left the newest state, and where.

    Inputs are acknowledged at checkpoints only: the one before counts if this one is known
    to have completed none. Raises PermanentError when that cannot be established, or the
    state of one that ran cannot be found.
    """
    if deployed is None or deployed.savepoint is not None:
        return deployed, deployed.savepoint if deployed else None
    if deployed.void:
        return newest_state(context, deployed.base)
    name, site = deployed.job.job_name, deployed.job.site
    engine = context.connections.engine(site)
    if not deployed.confirmed and engine.status(deployed.engine_job_id) is None:
        raise PermanentError(
            f"cannot start {name} from its newest state: whether its attempt"
            f" {deployed.attempt} ran cannot be established, since {site} does not know it"
            " (any more); set `upgrade: stateless` to start it without state"
        )
    try:
        found = engine.newest_state(deployed.engine_job_id)
    except EngineRefusedError as error:
        raise PermanentError(
            f"cannot start {name} from its newest state: {site}"
            f" knows none of its attempt {deployed.attempt} ({error});"
            " set `upgrade: stateless` to start it without state"
        ) from error
    if found is not None:
        return replace(deployed, base=None), found.path
    if deployed.confirmed or deployed.base is None:
        return deployed, None
    return newest_state(context, deployed.base)
