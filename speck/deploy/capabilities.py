"""What engines and brokers cannot do, by their binders' declarations; no request is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from speck.binding import BrokerCapability, EngineCapability
from speck.errors import NotFoundError, SpeckError
from speck.model.engines import EngineAt
from speck.model.job import Job
from speck.sites.connections import Connections


def find_lacking(
    connections: Connections, capability: EngineCapability, engines: Iterable[EngineAt]
) -> frozenset[EngineAt]:
    """The engines that do not have a capability."""
    without = set()
    for engine in engines:
        with suppress(NotFoundError):  # the site was removed: the change will be refused
            if capability not in connections.engine_of(engine).capabilities:
                without.add(engine)
    return frozenset(without)


def name_engine(connections: Connections, engine: EngineAt) -> str:
    """`the engine of site a`; with another engine beside it, which of the two."""
    name = f"the engine of site {engine.site}"
    is_one = connections.site(engine.site).spe.beside is None
    return name if is_one else f"{name} that takes kind {engine.artifact}"


def keeps_no_sessions(connections: Connections, site: str) -> bool:
    """Whether a site's broker keeps no messages for a reader that is disconnected."""
    try:
        capabilities = connections.broker(site).capabilities
    except SpeckError:  # no connection without its credentials: unknown yet
        return False
    return BrokerCapability.SESSIONS not in capabilities


def passes_reports(connections: Connections, site: str) -> bool:
    """Whether a site's broker tells sinks of readers, and keeps what they report."""
    try:
        return BrokerCapability.REPORTS in connections.broker(site).capabilities
    except SpeckError:  # the call itself will say why there is no connection
        return True


def forget_sinks(connections: Connections, site: str, sinks: Iterable[str]) -> None:
    """Clear the numbers that sinks have reported, if their broker keeps any."""
    if passes_reports(connections, site):
        connections.broker(site).forget(*sorted(sinks))


_DONE_WITHOUT = {
    EngineCapability.TRIAL: "an update stops what runs there without having tried the new program",
    EngineCapability.RESEND: "what a broker that is killed had not saved of a job that has left its"
    " link is lost",
    EngineCapability.METRICS: "nothing is measured there, and no placement knows its jobs",
}
"""What is done without a capability; what is refused without one is a problem, and no warning."""
_DONE_WITHOUT_AT_BROKERS = {
    BrokerCapability.REPORTS: "sinks are not told there whether a link has readers: the broker has"
    " to keep what nobody reads yet",
    BrokerCapability.MARKS: "a drain whose end no numbers show waits there until its reader takes"
    " nothing more for a while",
    BrokerCapability.METRICS: "there are no figures of the broker",
}


def warn_of_missing(connections: Connections, jobs: Sequence[Job]) -> list[str]:
    """What the engines and brokers of these jobs cannot do that is done without, by site and
    capability."""
    engines = [
        f"{name_engine(connections, engine)} has no capability `{capability}`: {consequence}"
        for engine in sorted({job.engine for job in jobs})
        for capability, consequence in _DONE_WITHOUT.items()
        if find_lacking(connections, capability, [engine])
    ]
    brokers = []
    for site in sorted({site for job in jobs for site in job.link_sites}):
        with suppress(SpeckError):  # no connection without its credentials: unknown yet
            capabilities = connections.broker(site).capabilities
            brokers += [
                f"the broker of site {site} has no capability `{capability}`: {consequence}"
                for capability, consequence in _DONE_WITHOUT_AT_BROKERS.items()
                if capability not in capabilities
            ]
    return engines + brokers
