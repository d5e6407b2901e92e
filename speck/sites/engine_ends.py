"""Tells how engines ended, to explain why they have lost jobs or workers."""

from __future__ import annotations

import logging

from speck.binding import EngineEnd
from speck.errors import SpeckError
from speck.sites.connections import Connections

LOG = logging.getLogger(__name__)

NOTICED_WITHIN_MS = 120_000
"""A worker may be back before its engine notices that it was lost: a heartbeat is missing."""


class EngineEnds:
    """What engines say of their last ends; each is asked once. Made anew for each occasion."""

    def __init__(self, connections: Connections):
        self._connections = connections
        self._ends: dict[str, EngineEnd | None] = {}

    def explain(self, site: str, failed_ms: int | None = None) -> str | None:
        """How the engine of a site, or a worker of it, ended last; None: not known, or long before
        a failure at `failed_ms` (Unix ms of the engine)."""
        if site not in self._ends:
            try:
                self._ends[site] = self._connections.engine(site).last_end()
            except SpeckError as error:
                LOG.info("cannot read how the engine of %s ended: %s", site, error)
                self._ends[site] = None
        end = self._ends[site]
        if end is None or (failed_ms is not None and end.at_ms < failed_ms - NOTICED_WITHIN_MS):
            return None
        return end.reason
