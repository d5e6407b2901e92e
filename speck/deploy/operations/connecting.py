"""Whether an incarnation's source is connected, and why not, by the metrics of its engine."""

from __future__ import annotations

import re
from collections.abc import Mapping

from speck.binding import EngineCapability, StreamEngine
from speck.errors import SpeckError

_SOURCE = "source"
_LASTING_REFUSAL = re.compile(
    "the broker refuses the (login|subscription): .*"
    "(NOT_AUTHORIZED|BAD_USER_NAME_OR_PASSWORD|BAD_AUTHENTICATION_METHOD|BANNED"
    "|CLIENT_IDENTIFIER_NOT_VALID|IDENTIFIER_REJECTED)"
)
"""How the connector reports a refusal that does not pass by itself, as that of a busy broker does.
It names the reasons of CONNACK and SUBACK as its MQTT library does."""


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


def is_refused_for_good(problem: str | None) -> bool:
    """Whether the broker refuses what the connector asks for, and goes on to do so until somebody
    changes credentials or permissions."""
    return problem is not None and _LASTING_REFUSAL.search(problem) is not None


def explain_disconnection(engine: StreamEngine, engine_job_id: str) -> str | None:
    """What the connector of an incarnation gives as the reason why it is not connected; None if it
    gives none, or its engine cannot be asked."""
    try:
        measure = engine.measure([engine_job_id]).jobs.get(engine_job_id)
    except SpeckError:
        return None
    return measure.link.problem if measure is not None and measure.link is not None else None
