"""Which broker and which engine answer at an address: they are known by what they hold.

A broker has an identity of speck's (`MessageBroker.identify`), an engine has the jobs that it runs,
whose ids speck has computed. So a site may change its addresses, and two names of one broker, or
two sites whose addresses were exchanged, are noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from speck.clock import Clock
from speck.errors import SpeckError, UnreachableError
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.store.records import Records
from speck.store.tables import Batch

_ANSWER_S = 3.0
"""A site may be registered before its machines run: they are not waited for any longer."""


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """What answers at a broker's address: its identity, None if it has none. `error`: why nothing
    is known of it."""

    identity: str | None
    error: SpeckError | None = None


class Identities:
    """Asks brokers and engines who they are, and remembers which broker a site has."""

    def __init__(self, records: Records, connections: Connections, clock: Clock):
        self._records = records
        self._connections = connections
        self._clock = clock

    def recorded(self, site: str) -> str | None:
        """The identity of a site's broker; None if it has never answered."""
        return self._records.sites.broker_identity(site)

    def find_holder(self, identity: str, others: Iterable[str]) -> str | None:
        """Which of these sites has the broker of this identity."""
        return next((name for name in others if self.recorded(name) == identity), None)

    def put(self, site: str, identity: str | None) -> Batch:
        """Remember a site's broker; with None, that nothing is known of it."""
        return self._records.sites.put_broker_identity(site, identity)

    def ask_broker(self, site: Site, give: str | None = None) -> BrokerAnswer:
        """Ask the broker at the address of `site`; it gets the identity `give` if it has none."""
        try:
            with self._connections.visit_broker(site, _ANSWER_S) as broker:
                return BrokerAnswer(broker.identify(give))
        except SpeckError as error:
            return BrokerAnswer(None, error)

    def finds_stranger(self, site: Site) -> bool:
        """Whether another broker than the one that the site had answers at its address."""
        recorded = self.recorded(site.name)
        if recorded is None:
            return False
        answer = self.ask_broker(site)
        return answer.error is None and answer.identity != recorded

    def explain_stranger(self, site: str, shown: str | None) -> str | None:
        """Whose broker answers at the address of `site` with this identity; None if it is its own,
        or may be."""
        recorded = self.recorded(site)
        if shown is None or shown == recorded:
            return None
        holder = self.find_holder(
            shown, (name for name in self._records.sites.all() if name != site)
        )
        if holder is not None:
            return f"it is that of site {holder}, or a bridge carries what lies below speck/"
        return None if recorded is None else "it is not the one that it had"

    def refuse_stranger(self, site: str, shown: str | None) -> None:
        """Raises UnreachableError if another broker than that of the site shows this identity: the
        site's own broker cannot be reached then."""
        whose = self.explain_stranger(site, shown)
        if whose is not None:
            raise UnreachableError(
                f"cannot use the broker of site {site}: another one answers at its address:"
                f" {whose}. Give the new address of its own broker (`speck site update {site}"
                " --broker URL`), or accept this one (`--new-broker`)"
            )

    def make(self) -> str:
        return self._clock.new_id()

    def find_engine_owner(self, site: Site, sites: Mapping[str, Site]) -> str | None:
        """Which other of the `sites` has its jobs at the engine at the address of `site`. None: no
        other one, as far as the engine tells."""
        with suppress(SpeckError), self._connections.visit_engine(site, _ANSWER_S) as engine:
            running = {id for id, job in engine.jobs().items() if not job.state.terminal}
            for other in sites:
                own = self._records.incarnations.at_engine_of(other).values()
                if other != site.name and any(each.engine_job_id in running for each in own):
                    return other
        return None
