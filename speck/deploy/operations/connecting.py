"""Whether an incarnation takes its input, as far as its engine's figures tell."""

from __future__ import annotations

from collections.abc import Mapping

_SOURCE = "source"


def source_connected(figures: Mapping[str, float]) -> bool:
    """False when a source tells `connected` as 0; true also where none tells.

    `figures` go by operator (`Source__mqtt-source.connected`), as `StreamEngine.metrics` tells.
    Sinks tell `connected` too, and that of a committer is 0 while it has nothing to send.
    """
    for name, value in figures.items():
        operator, _, metric = name.rpartition(".")
        if metric == "connected" and value == 0 and operator.lower().startswith(_SOURCE):
            return False
    return True
