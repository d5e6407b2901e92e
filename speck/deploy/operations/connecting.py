"""Whether an incarnation's source is connected, and why not, by the metrics of its engine."""

from __future__ import annotations

from collections.abc import Mapping

from speck.binding import EngineCapability, StreamEngine
from speck.errors import SpeckError
from speck.model.measurement import LinkMeasure

_SOURCE = "source"


def is_connected(engine: StreamEngine, engine_job_id: str) -> bool:
    """Whether an incarnation's source is connected, as far as its engine reports it. Raises
    SpeckError."""
    if EngineCapability.METRICS not in engine.capabilities:
        return True
    return source_connected(engine.metrics(engine_job_id))


def source_connected(figures: Mapping[str, float]) -> bool:
    """False if a source reports `connected` as 0; true also if no source reports it.

    `figures` are metrics by operator (`Source__mqtt-source.connected`), as returned by
    `StreamEngine.metrics`. Sinks report `connected` too, and that of a committer is 0 while it has
    nothing to send.
    """
    for name, value in figures.items():
        operator, _, metric = name.rpartition(".")
        if metric == "connected" and value == 0 and operator.lower().startswith(_SOURCE):
            return False
    return True


def explain_disconnection(engine: StreamEngine, engine_job_id: str) -> LinkMeasure | None:
    """What the connector of an incarnation reports of its links, with the reason why it is not
    connected; None if it reports nothing, or its engine cannot be asked."""
    try:
        measure = engine.measure([engine_job_id]).jobs.get(engine_job_id)
    except SpeckError:
        return None
    return measure.link if measure is not None else None
