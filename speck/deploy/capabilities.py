"""What engines and brokers cannot do, by their binders' declarations; no request is sent."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from speck.binding import BrokerCapability, EngineCapability
from speck.errors import NotFoundError, SpeckError
from speck.sites.connections import Connections


def find_sites_lacking(
    connections: Connections, capability: EngineCapability, sites: Iterable[str]
) -> frozenset[str]:
    """The sites whose engine does not have a capability."""
    without = set()
    for site in sites:
        with suppress(NotFoundError):  # the site was removed: the change will be refused
            if capability not in connections.engine(site).capabilities:
                without.add(site)
    return frozenset(without)


def keeps_no_sessions(connections: Connections, site: str) -> bool:
    """Whether a site's broker keeps no messages for a reader that is disconnected."""
    try:
        capabilities = connections.broker(site).capabilities
    except SpeckError:  # no connection without its credentials: unknown yet
        return False
    return BrokerCapability.SESSIONS not in capabilities
