"""What the token of a site may say about its site: addresses and state folders that lie where an
administrator allows them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import unquote, urlsplit

from speck.binding import normalise_address
from speck.model.hosts import IPAddress, find_reached, read_ip

Network = IPv4Network | IPv6Network
Lookup = Callable[[str], Sequence[str]]
"""Resolves a DNS name to IP addresses. Raises OSError."""

_NEVER: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this machine, for Linux
            "::/128",
            "169.254.0.0/16",  # link-local; the metadata service of most clouds is at .169.254
            "fe80::/10",
            "fd00:ec2::/32",  # metadata services of clouds at other addresses
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.0/24",
            "224.0.0.0/4",
            "ff00::/8",
            "255.255.255.255/32",
        ),
    )
)
"""No engine or broker lies here, whatever is configured."""


def look_up(name: str) -> Sequence[str]:
    """All addresses of a DNS name. Raises OSError."""
    return [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


@dataclass(frozen=True)
class SiteNetworks:
    """The networks that hold the engines and brokers of sites which register themselves, and the
    prefixes of their state URIs. Nothing is allowed without configuration."""

    networks: tuple[Network, ...] = ()
    state_uris: tuple[str, ...] = ()
    look_up: Lookup = look_up

    def allows(self, address: str) -> bool:
        """Whether `address` is `scheme://host:port` and nothing else, and every IP address of its
        host lies in an allowed network. A DNS name is resolved now: who controls its zone can
        change it later, but the service sends only requests of its own to it."""
        try:
            parts = urlsplit(normalise_address(address))
        except ValueError:
            return False
        host = parts.hostname or ""
        if parts.path or not host.isascii() or "%" in host or not self.networks:
            return False
        ips = self._resolve(host)
        return bool(ips) and all(map(self._holds, ips))

    def allows_state(self, uri: str) -> bool:
        """Whether a state URI lies at or below an allowed prefix, and has no `..` in it."""
        decoded = unquote(unquote(uri))
        if ".." in decoded.replace("\\", "/").split("/"):
            return False
        return any(is_below(uri, prefix) for prefix in self.state_uris)

    def _resolve(self, host: str) -> list[IPAddress]:
        ip = read_ip(host)
        if ip is not None:
            return [ip]
        try:
            return [ip_address(text.partition("%")[0]) for text in self.look_up(host)]
        except (OSError, ValueError):  # UnicodeError is a ValueError
            return []

    def _holds(self, ip: IPAddress) -> bool:
        reached = find_reached(ip)
        if any(each in network for each in (ip, reached) for network in _NEVER):
            return False
        return any(reached in network for network in self.networks)


def is_below(uri: str, prefix: str) -> bool:
    """Whether `uri` is `prefix` or lies below it."""
    prefix = prefix.rstrip("/")
    return uri.rstrip("/") == prefix or uri.startswith(f"{prefix}/")
