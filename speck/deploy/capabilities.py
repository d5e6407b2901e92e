"""What engines and brokers say that they cannot do; none is asked."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from speck.binding import BrokerCapability, EngineCapability
from speck.errors import NotFoundError, SpeckError
from speck.sites.connections import Connections


def lacking(
    connections: Connections, capability: EngineCapability, sites: Iterable[str]
) -> frozenset[str]:
    """The sites whose engine says that it cannot do something."""
    without = set()
    for site in sites:
        with suppress(NotFoundError):  # removed meanwhile: the change will be refused
            if capability not in connections.engine(site).capabilities:
                without.add(site)
    return frozenset(without)


def keeps_no_sessions(connections: Connections, site: str) -> bool:
    """Whether a site's broker says that it keeps nothing for a reader that is away."""
    try:
        capabilities = connections.broker(site).capabilities
    except SpeckError:  # without its credentials nothing is known of it yet
        return False
    return BrokerCapability.SESSIONS not in capabilities
