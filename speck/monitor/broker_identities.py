"""Notices which brokers answer at the sites' addresses.

A broker that was away when its site was registered gets its identity later. Once a site's broker
has one, another broker at its address is a stranger: a network may have given the address to
another machine. Neither the watch nor a change uses a stranger.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from speck.clock import Clock
from speck.errors import SpeckError
from speck.model.observation import BrokerView
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.sites.poll_cache import Poll
from speck.store.records import Records

LOG = logging.getLogger(__name__)

_GIVE_AGAIN_S = 30.0
"""A broker that keeps no identity is asked again so long later."""


@dataclass(frozen=True, slots=True)
class _Stranger:
    """Another broker at the address of a site, known since a poll that began then (monotonic)."""

    identity: str
    since: float
    is_reported: bool = False


class BrokerIdentities:
    """Compares what brokers report with what is stored, gives identities in a thread of its own,
    and reports strangers."""

    def __init__(self, records: Records, connections: Connections, clock: Clock):
        self._records = records
        self._connections = connections
        self._identities = Identities(records, connections, clock)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="identities")
        self._giving: dict[str, Future[None]] = {}
        self._given_at: dict[str, float] = {}
        self._strangers: dict[str, _Stranger] = {}

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether no identity is being given."""
        return not any(map(self._is_giving, list(self._giving)))

    @property
    def strangers(self) -> frozenset[str]:
        """The sites at whose addresses other brokers answer."""
        return frozenset(self._strangers)

    def poll(self, polls: Mapping[str, Poll[BrokerView]]) -> None:
        """Take new polls of brokers."""
        sites = self._records.sites.all()
        self._strangers = {site: s for site, s in self._strangers.items() if site in sites}
        for site, poll in sorted(polls.items()):
            if poll.answer is None or site not in sites or self._is_giving(site):
                continue
            shown, recorded = poll.answer.identity, self._identities.recorded(site)
            if shown is None:
                self._strangers.pop(site, None)
                self._begin_giving(site, recorded, poll.begun)
            elif recorded is None:
                self._learn(site, shown)
            elif shown != recorded:
                self._meet_stranger(site, shown, poll.begun)
            elif self._strangers.pop(site, None) is not None:
                self._report(site, f"the broker of site {site} answers at its address again")

    def _learn(self, site: str, identity: str) -> None:
        """Remember the broker of a site that was away, unless another site has it."""
        holder = self._find_holder(site, identity)
        if holder is None:
            self._records.write(self._identities.put(site, identity))
            self._strangers.pop(site, None)
        elif site not in self._strangers:
            self._strangers[site] = _Stranger(identity, 0.0, is_reported=True)
            self._report(
                site,
                f"the broker at the address of site {site} is that of site {holder}: a broker"
                " belongs to one site, by whatever name it is reached (and a bridge must not carry"
                " what lies below speck/); correct the address with `speck site update"
                f" {site} --broker URL`",
            )

    def _meet_stranger(self, site: str, identity: str, begun: float) -> None:
        """Report it when a second poll shows it: the first may be older than a change of the site's
        address."""
        stranger = self._strangers.get(site)
        if stranger is None or stranger.identity != identity:
            stranger = _Stranger(identity, begun)
        elif begun > stranger.since and not stranger.is_reported:
            whose = self._identities.explain_stranger(site, identity)
            self._report(
                site,
                f"another broker answers at the address of site {site}: {whose}. The sessions of"
                f" {site} and what waits in them are not there, and jobs that have this address"
                f" read and write there. Give the new address of its own broker (`speck site update"
                f" {site} --broker URL`), or accept this one (`--new-broker`)",
            )
            stranger = replace(stranger, is_reported=True)
        self._strangers[site] = stranger

    def _find_holder(self, site: str, identity: str) -> str | None:
        others = (name for name in self._records.sites.all() if name != site)
        return self._identities.find_holder(identity, others)

    def _begin_giving(self, site: str, recorded: str | None, now: float) -> None:
        if now - self._given_at.get(site, float("-inf")) < _GIVE_AGAIN_S:
            return
        self._given_at[site] = now
        self._giving[site] = self._pool.submit(self._give, site, recorded)

    def _is_giving(self, site: str) -> bool:
        under_way = self._giving.get(site)
        return under_way is not None and not under_way.done()

    def _give(self, site: str, recorded: str | None) -> None:
        """Give the broker an identity: it was away until now, or has lost what it had stored. A
        later poll shows it; until then the site has none."""
        try:
            identity = self._connections.broker(site).identify(self._identities.make())
        except SpeckError as error:
            LOG.info("cannot identify the broker of %s: %s", site, error)
            return
        if recorded is None or identity == recorded or self._identities.recorded(site) != recorded:
            return
        self._records.write(self._identities.put(site, None))
        self._report(
            site,
            f"the broker of site {site} has lost what it had stored, or another one without any"
            " identity answers at its address: its sessions are made anew",
        )

    def _report(self, site: str, message: str) -> None:
        self._records.write(self._records.events.make("site", message, site=site))
