"""Sites in the store, with what is known of each: its agent's last report, its speed, and by which
identities its broker and its agent are known again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from speck.model.site import AgentReport, Calibration, Site
from speck.store.tables import Batch, KeptTable, Tables


@dataclass(frozen=True, slots=True)
class SiteIdentity:
    id: str


@dataclass(frozen=True, slots=True)
class StoredReport:
    """What a site's agent reported, and when (RFC 3339)."""

    at: str
    body: AgentReport


class SiteRecords:
    """All sites. `site/<name>`, `beat/<name>`, `calibration/<name>`, `brokerid/<name>`,
    `agentid/<name>`."""

    def __init__(self, tables: Tables):
        self._all: dict[str, Site] = {}
        self.writes = 0
        """How many sites were written or read: addresses in stored documents follow them."""
        self._sites = tables.table("site", Site, on_write=self._keep)
        self._reports = tables.kept("beat", StoredReport)
        self._calibrations = tables.kept("calibration", Calibration)
        self._brokers = tables.kept("brokerid", SiteIdentity)
        self._agents = tables.kept("agentid", SiteIdentity)

    def all(self) -> Mapping[str, Site]:
        """The sites by name, in order of name; not a copy, since every call to a site needs it."""
        return self._all

    def put(self, site: Site) -> Batch:
        return self._sites.put(site, site.name)

    def drop(self, name: str) -> Batch:
        """Delete a site with all that is known of it."""
        tables = (self._sites, self._reports, self._calibrations, self._brokers, self._agents)
        return {table.key(name): None for table in tables}

    def report(self, site: str) -> StoredReport | None:
        """The last report of its agent."""
        return self._reports.get(site)

    def put_report(self, site: str, report: StoredReport) -> Batch:
        return self._reports.put(report, site)

    def calibration(self, site: str) -> Calibration | None:
        """How fast it is; None if that was never measured."""
        return self._calibrations.get(site)

    def calibrations(self) -> Iterator[tuple[str, Calibration]]:
        """(site, calibration) of those that were calibrated."""
        return self._calibrations.items()

    def put_calibration(self, site: str, calibration: Calibration) -> Batch:
        return self._calibrations.put(calibration, site)

    def broker_identity(self, site: str) -> str | None:
        """By which its broker is known again at another address."""
        return _read(self._brokers, site)

    def put_broker_identity(self, site: str, identity: str | None) -> Batch:
        """With None: nothing is known of its broker."""
        return {self._brokers.key(site): SiteIdentity(identity) if identity is not None else None}

    def agent_identity(self, site: str) -> str | None:
        """What lies in the state folder of its agent."""
        return _read(self._agents, site)

    def put_agent_identity(self, site: str, identity: str | None) -> Batch:
        """With None: the next agent that reports is that of the site."""
        return {self._agents.key(site): SiteIdentity(identity) if identity is not None else None}

    def _keep(self, name: str, site: Site | None) -> None:
        sites = {each: known for each, known in self._all.items() if each != name}
        if site is not None:
            sites[name] = site
        self._all = dict(sorted(sites.items()))
        self.writes += 1


def _read(identities: KeptTable[SiteIdentity], site: str) -> str | None:
    identity = identities.get(site)
    return identity.id if identity is not None else None
