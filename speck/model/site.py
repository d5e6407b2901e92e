"""Sites: an engine and a broker at one place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from speck.model.hosts import normalise_host
from speck.model.values import show

STATE_URI = "state_uri"
"""The label that says where a site keeps savepoints."""


class Tier(StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


_DEFAULT_PORTS = {"http": 80, "https": 443, "tcp": 1883, "mqtt": 1883, "ssl": 8883, "mqtts": 8883}
_HIGHEST_PORT = 65_535
_ADDRESS = re.compile(
    r"([A-Za-z]+)://(\[[^\[\]/?#@\\\s]+\]|[^\[\]/?#@:\\\s]+)(:[0-9]*)?(/[^\s?#\\]*)?", re.ASCII
)
_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@-]*|%[0-9A-Fa-f]{2}")
_SECRETS = re.compile(r"[A-Za-z]+://[^/]*@|.*[?#]", re.DOTALL)


class AddressError(ValueError):
    """A text is no address. `reason` says why; None if it does not even look like one."""

    def __init__(self, message: str, reason: str | None = None):
        super().__init__(message)
        self.reason = reason


class SecretsInAddressError(AddressError):
    """An address holds more than a place; the message does not repeat it."""


@lru_cache(4096)
def normalise_address(address: str) -> str:
    """Return `address` in the form in which addresses are compared.

    Lower-case scheme and host, explicit port, no trailing slash: `http://Pi:8081/` ->
    `http://pi:8081`. An IP address has one spelling: `http://0x7f.1` -> `http://127.0.0.1:80`; an
    international name is in ASCII. This is the only grammar of addresses: whatever connects to
    one (Python, and the connector in Java) takes what this function returns. Raises AddressError
    unless it is `scheme://host[:port][/path]`.
    """
    text = address.strip()
    if _SECRETS.match(text):
        raise SecretsInAddressError("an address must hold no user, password, query or fragment")
    parts = _ADDRESS.fullmatch(text)
    scheme = parts[1].lower() if parts else ""
    scheme = {"mqtt": "tcp", "mqtts": "ssl"}.get(scheme, scheme)
    if parts is None or scheme not in _DEFAULT_PORTS:
        raise _address_error(text)
    digits = (parts[3] or "")[1:]
    port = int(digits[:9]) if digits else _DEFAULT_PORTS[scheme]
    if not 0 < port <= _HIGHEST_PORT:
        raise _address_error(text, f"a port is a number from 1 to {_HIGHEST_PORT}")
    path = (parts[4] or "").rstrip("/")
    if _PATH.sub("", path):
        raise _address_error(text, "its path holds characters that must be written as %XX")
    try:
        host = normalise_host(parts[2])
    except ValueError as error:
        raise _address_error(text, str(error)) from error
    return f"{scheme}://{host}:{port}{path}"


def _address_error(text: str, reason: str | None = None) -> AddressError:
    why = f": {reason}" if reason else ""
    example = "an address like http://host:8081 or tcp://host:1883"
    return AddressError(f"{show(text)} is not {example}{why}", reason)


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
