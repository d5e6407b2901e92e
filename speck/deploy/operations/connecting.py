"""Whether an incarnation's source is connected, by the metrics of its engine."""

from __future__ import annotations

from collections.abc import Mapping

_SOURCE = "source"


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
