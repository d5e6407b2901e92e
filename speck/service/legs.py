"""The part of a site's check that looks at its legs."""

from __future__ import annotations

from speck.binding import is_encrypted
from speck.clock import Clock
from speck.config import Config
from speck.errors import SpeckError
from speck.model.finding import Finding, PartFinding
from speck.service.agents import Agents
from speck.sites.connections import Connections
from speck.tls.contexts import ClientTls
from speck.tls.legs import expiry_findings, file_findings, legs_of, plain_finding


class Legs:
    """Names the plain legs of a site, and certificates that end soon."""

    def __init__(self, config: Config, connections: Connections, agents: Agents, clock: Clock):
        scheme = "https" if config.tls_cert else "http"
        self._service = f"{scheme}://{config.host}:{config.port}"
        self._own_files = [file for file in (config.tls_cert, config.client_ca) if file]
        self._connections = connections
        self._agents = agents
        self._clock = clock

    def findings(self, name: str) -> list[PartFinding]:
        """The findings of all legs of a site."""
        site = self._connections.site(name)
        try:
            files = self._connections.credentials(name).tls
        except SpeckError:  # the check of the broker reports it
            files = ClientTls()
        findings: list[tuple[str, Finding]] = []
        listen = self._agents.beat(name).listen
        for leg in legs_of(site, files, listen, self._service, is_encrypted):
            if plain := plain_finding(leg, name):
                findings.append((leg.part, plain))
            expiring = expiry_findings(leg, files, self._clock.now())
            findings += [(leg.part, finding) for finding in expiring]
        own = file_findings(self._own_files, self._clock.now())
        findings += [("service", finding) for finding in own]
        return [PartFinding.of(part, finding) for part, finding in findings]
