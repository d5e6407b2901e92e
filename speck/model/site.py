"""Sites: an engine and a broker at one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from speck.model.hosts import normalise_host

STATE_URI = "state_uri"
"""The label that says where a site keeps savepoints."""


class Tier(StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


_DEFAULT_PORTS = {"http": 80, "https": 443, "tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}


def normalise_address(address: str) -> str:
    """Return `address` in the form in which addresses are compared.

    Lower-case scheme and host, explicit port, no trailing slash: `http://Pi:8081/` ->
    `http://pi:8081`. An IP address has one spelling: `http://0x7f.1` -> `http://127.0.0.1:80`.
    Raises ValueError unless it is `scheme://host[:port]`.
    """
    parts = urlsplit(address.strip())
    scheme = {"mqtt": "tcp", "mqtts": "ssl"}.get(parts.scheme, parts.scheme)
    if scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{address!r} is not an address like http://host:8081 or tcp://host:1883")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"{address!r} must hold no user, password, query or fragment")
    host = normalise_host(parts.hostname)
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[scheme]
    return f"{scheme}://{host}:{port}{parts.path.rstrip('/')}"


@dataclass(frozen=True, slots=True)
class Engine:
    """How to reach a site's stream engine: the name of its entry point and a normalised address."""

    kind: str
    address: str


@dataclass(frozen=True, slots=True)
class Broker:
    """How to reach a site's broker. `credentials` is the name of a file, never a secret; an engine
    at an https address is reached with the certificates in it, too."""

    kind: str
    address: str
    credentials: str | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A place with one engine and one broker."""

    name: str
    tier: Tier
    spe: Engine
    broker: Broker
    uplink_mbps: float | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def state_uri(self) -> str | None:
        """Where this site keeps savepoints (label `state_uri`); equal URIs are shared storage."""
        return self.labels.get(STATE_URI)
