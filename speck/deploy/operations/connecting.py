"""Whether an incarnation's source is connected, and why not, as its engine reports it."""

from __future__ import annotations

from speck.binding import EngineCapability, StreamEngine
from speck.errors import SpeckError
from speck.model.measurement import LinkMeasure


def is_connected(engine: StreamEngine, engine_job_id: str) -> bool:
    """Whether an incarnation's source is connected; true also if its engine does not report it.
    Raises SpeckError."""
    if EngineCapability.METRICS not in engine.capabilities:
        return True
    return engine.is_connected(engine_job_id) is not False


def explain_disconnection(engine: StreamEngine, engine_job_id: str) -> LinkMeasure | None:
    """What the connector of an incarnation reports of its links, with the reason why it is not
    connected; None if it reports nothing, or its engine cannot be asked."""
    try:
        measure = engine.measure([engine_job_id]).jobs.get(engine_job_id)
    except SpeckError:
        return None
    return measure.link if measure is not None else None
