"""Addresses of Kafka, `kafka://host:port,host:port` and `kafka+ssl://host:port`, and names of
topics."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

PLAIN, ENCRYPTED = "kafka", "kafka+ssl"
LOG_SCHEMES = (PLAIN, ENCRYPTED)
_PORTS = {PLAIN: 9092, ENCRYPTED: 9093}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class AddressError(ValueError):
    """No address, or no topic, of Kafka."""


def normalize(address: str) -> str:
    """The address with all ports, its hosts in order. Raises AddressError."""
    scheme, _, rest = address.partition("://")
    scheme = scheme.lower()
    hosts = rest.removesuffix("/").split(",")
    if scheme not in LOG_SCHEMES or not rest:
        raise _refuse(address)
    named = {_normalize_host(address, host.strip(), _PORTS[scheme]) for host in hosts}
    return f"{scheme}://{','.join(sorted(named))}"


def _normalize_host(address: str, text: str, default_port: int) -> str:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _refuse(address) from error
    if not host or "@" in text or parts.path or parts.query or parts.fragment:
        raise _refuse(address)
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{default_port if port is None else port}"


def _refuse(address: str) -> AddressError:
    return AddressError(
        f'the broker address "{address}" must be kafka://host:port, kafka+ssl://host:port, or'
        " several hosts joined by commas"
    )


def check_topic(topic: str, broker: str) -> None:
    """Raises AddressError if no topic may have that name."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise AddressError(
            f'the topic "{topic}" at {broker} must be a name of Kafka: 1 to 249 letters, digits,'
            " dots, hyphens and underscores"
        )


def is_same(address: str, broker: str) -> bool:
    """Whether an address is that of a normalized one, however it is written."""
    try:
        return normalize(address) == broker
    except AddressError:
        return False
