"""Makes sure that operations reach the sites' own brokers: at a stranger a session is none of ours,
and its numbers say nothing about our readers.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from speck.clock import Clock
from speck.deploy.locks import NamedLocks
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import SpeckError
from speck.model.job_operations import CatchUp, Forget, Return, Start
from speck.model.link_operations import Clear, Release, Reserve
from speck.model.observation import BrokerView
from speck.model.plan import Operation
from speck.sites.connections import Connections
from speck.sites.identities import Identities

_VALID_S = 1.0
"""An address leads to another machine only after a while: a hundred operations share one answer."""


class OwnBrokers:
    """Compares the identity of the broker that answers at a site's address with the stored one."""

    def __init__(
        self,
        connections: Connections,
        identities: Identities,
        clock: Clock,
        scheduler: Scheduler = THREADS,
    ):
        self._connections = connections
        self._identities = identities
        self._clock = clock
        self._locks = NamedLocks(scheduler)
        self._shown: dict[str, tuple[float, str, str | None]] = {}
        """By site: when its broker was asked (monotonic), at which address, and what it said."""

    def check(self, operation: Operation) -> None:
        """Raises UnreachableError if a broker that the operation changes is a stranger."""
        match operation:
            case Reserve() | Release() | Clear():
                sites = [operation.site]
            case Forget():
                sites = [*operation.link_sites]
            case Start() | CatchUp() | Return():  # its job would write there what it has restored
                sites = [*operation.job.link_sites]
            case _:  # it changes nothing at a broker; what it reads there is checked as it is read
                sites = []
        for site in dict.fromkeys(sites):
            self._identities.refuse_stranger(site, self._ask(site))

    def view(self, site: str, client_ids: Collection[str] | None = None) -> BrokerView:
        """The numbers of a site's broker, of these clients at least. Raises UnreachableError for
        those of a stranger. It shows the identity, which need not be asked for then."""
        began, address = self._clock.monotonic(), self._find_address(site)
        view = self._connections.broker(site).view(client_ids)
        if address is not None and view.identity is not None:
            self._shown[site] = began, address, view.identity
        self._identities.refuse_stranger(site, view.identity)
        return view

    def _ask(self, site: str) -> str | None:
        """The identity of what answers; None also if nothing does, which the operation itself will
        find. A broker that is away is waited for once, not by a hundred operations in turn."""
        with self._locks[site]:
            address = self._find_address(site)
            if address is None:
                return None
            at, where, shown = self._shown.get(site, (float("-inf"), "", None))
            if self._clock.monotonic() - at > _VALID_S or where != address:
                shown = None
                with suppress(SpeckError):
                    shown = self._connections.broker(site).identify()
                self._shown[site] = self._clock.monotonic(), address, shown
            return shown

    def _find_address(self, site: str) -> str | None:
        try:
            return self._connections.site(site).broker.address
        except SpeckError:
            return None
