"""Tells how engines ended, to explain why they have lost jobs or workers."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future

from speck.binding import EngineEnd
from speck.errors import SpeckError
from speck.model.engines import EngineAt
from speck.sites.connections import Connections

LOG = logging.getLogger(__name__)

NOTICED_WITHIN_MS = 120_000
"""A worker may be back before its engine notices that it was lost: a heartbeat is missing."""


class EngineEnds:
    """What engines say of their last ends; each is asked once, also by several threads. Made anew
    for each occasion."""

    def __init__(self, connections: Connections):
        self._connections = connections
        self._lock = threading.Lock()
        self._ends: dict[EngineAt, Future[EngineEnd | None]] = {}

    def explain(self, engine: EngineAt, failed_ms: int | None = None) -> str | None:
        """How an engine, or a worker of it, ended last; None: not known, or long before
        a failure at `failed_ms` (Unix ms of the engine)."""
        with self._lock:
            asks = engine not in self._ends
            answer = self._ends.setdefault(engine, Future())
        if asks:
            try:
                answer.set_result(self._connections.engine_of(engine).last_end())
            except SpeckError as error:
                LOG.info("cannot read how the engine of %s ended: %s", engine.site, error)
                answer.set_result(None)
            except BaseException as error:
                answer.set_exception(error)
        end = answer.result()
        if end is None or (failed_ms is not None and end.at_ms < failed_ms - NOTICED_WITHIN_MS):
            return None
        return end.reason
