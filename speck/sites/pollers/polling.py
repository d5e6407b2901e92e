"""Polls sites: here while they are few, in poller processes once they are many."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from speck.binding import (
    BROKERS,
    ENGINES,
    BrokerPoll,
    EnginePoll,
    is_simulated,
    poll_broker,
    poll_engine,
)
from speck.errors import TransientError
from speck.sites.connections import Connections
from speck.sites.pollers.pool import Pollers


class Polling:
    """All polls of engines and brokers. Thread-safe.

    Processes are started when `from_sites` sites are registered, and stay. A few sites are polled
    sooner without: a request to a process and its answer take more than they save.
    """

    def __init__(
        self,
        connections: Connections,
        count_sites: Callable[[], int],
        processes: int,
        from_sites: int,
    ):
        """`processes`: how many; 0: polls are always made here."""
        self._connections = connections
        self._count_sites = count_sites
        self._processes = processes
        self._from_sites = from_sites
        self._lock = threading.Lock()
        self._pollers: Pollers | None = None
        self._closed = False

    @property
    def apart(self) -> bool:
        """Whether polls are made in other processes."""
        return self._pollers is not None

    @property
    def pids(self) -> list[int]:
        """The poller processes that run now."""
        return self._pollers.pids if self._pollers else []

    def engine(self, site: str, what: EnginePoll, job_ids: Iterable[str] = ()) -> Any:
        """Poll the engine of a site; see `speck.binding.poll_engine`. Raises SpeckError."""
        return self.ask_engine(site, what, job_ids)()

    def ask_engine(
        self, site: str, what: EnginePoll, job_ids: Iterable[str] = (), *, urgent: bool = False
    ) -> Callable[[], Any]:
        """What waits for the answer of a site's engine; where pollers are used, it is asked before
        this returns. Raises SpeckError."""
        if self._are_many():
            kind, target = self._connections.engine_target(site)
            # what is in the memory of this process, or pushed to it, is not read by another
            is_here = target.agent is not None or is_simulated(ENGINES, kind)
            if not is_here and self._connections.site(site).spe.beside is None:
                pollers = self._find_pollers()
                return pollers.ask(what, kind, target, tuple(job_ids), urgent=urgent)
        return partial(poll_engine, self._connections.engine(site), what, tuple(job_ids))

    def broker(self, site: str, what: BrokerPoll) -> Any:
        """Poll the broker of a site; see `speck.binding.poll_broker`. Raises SpeckError."""
        return self.ask_broker(site, what)()

    def ask_broker(self, site: str, what: BrokerPoll, *, urgent: bool = False) -> Callable[[], Any]:
        """The same of a site's broker."""
        if self._are_many():
            kind, target = self._connections.broker_target(site)
            if not is_simulated(BROKERS, kind):
                return self._find_pollers().ask(what, kind, target, urgent=urgent)
        return partial(poll_broker, self._connections.broker(site), what)

    def close(self) -> None:
        """End the processes."""
        with self._lock:
            self._closed = True
            pollers = self._pollers
        if pollers is not None:
            pollers.close()

    def _are_many(self) -> bool:
        if self._pollers is not None:
            return True
        return self._processes > 0 and self._count_sites() >= self._from_sites

    def _find_pollers(self) -> Pollers:
        with self._lock:
            if self._closed:
                raise TransientError("cannot poll sites: the service is stopping")
            if self._pollers is None:
                self._pollers = Pollers(self._processes)
            return self._pollers
