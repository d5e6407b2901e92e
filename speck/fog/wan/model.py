"""The model of a WAN: each site's uplink, sites that share a LAN, and this machine's place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from speck.errors import PermanentError

Mode = Literal["namespaces", "proxy"]
EVERYWHERE = "everywhere"
LEAST_MBPS = 0.01  # below, a single packet takes more than a second
MOST_MBPS = 10_000.0
MOST_LATENCY_MS = 10_000.0


@dataclass(frozen=True, slots=True)
class Uplink:
    """A site's connection to the WAN: its rates in Mb/s (None: unlimited), and the one-way latency
    from the site to the core of the network, in milliseconds."""

    up_mbps: float | None = None
    down_mbps: float | None = None
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Wan:
    """The latency between two sites is the sum of both uplinks' latencies, each way. Sites of the
    same LAN reach each other directly, without latency and without their uplinks.

    `host` is the place of this machine's own programs (the service, feeds, readers). With
    `everywhere`, they reach each site over that site's LAN, which is not counted, so that the
    uplinks carry only the traffic between sites. With a site's name, they are at that site, behind
    its uplink.
    """

    uplinks: Mapping[str, Uplink] = field(default_factory=dict)
    lans: tuple[tuple[str, ...], ...] = ()
    host: str = EVERYWHERE

    def uplink(self, site: str) -> Uplink:
        """The uplink of `site`; a site without an entry has an unlimited one."""
        return self.uplinks.get(site, Uplink())

    def peers(self, site: str) -> tuple[str, ...]:
        """The other sites of its LAN."""
        lan = next((lan for lan in self.lans if site in lan), ())
        return tuple(other for other in lan if other != site)

    def latency_ms(self, one: str, other: str) -> float:
        """The one-way latency between two sites."""
        if one == other or other in self.peers(one):
            return 0.0
        return self.uplink(one).latency_ms + self.uplink(other).latency_ms


@dataclass(frozen=True, slots=True)
class WanState:
    """The current WAN of a fog. `down` holds the sites whose link is down, `network` the first
    three bytes of all addresses (namespaces only), and `relays` the ports at which a site's engines
    reach the broker of another, from -> to -> port (proxy only)."""

    wan: Wan
    mode: Mode = "namespaces"
    network: str = ""
    down: tuple[str, ...] = ()
    relays: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def with_uplink(self, site: str, uplink: Uplink) -> WanState:
        """The state with another uplink of `site`."""
        return replace(self, wan=replace(self.wan, uplinks={**self.wan.uplinks, site: uplink}))

    def with_link(self, site: str, up: bool) -> WanState:
        """The state with the link of `site` up or down."""
        others = tuple(other for other in self.down if other != site)
        return replace(self, down=others if up else (*others, site))


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The status of a site's uplink. Bytes are those of whole packets as the kernel counts them,
    including 14 bytes of Ethernet each (with the proxy: only TCP payload, and no packets).
    `packets` counts both directions, `dropped` the packets lost to full queues. `up` is false when
    the link was taken down, or when the delay element does not run."""

    site: str
    up: bool
    up_bytes: int
    down_bytes: int
    up_mbps: float | None
    down_mbps: float | None
    latency_ms: float
    packets: int
    dropped: int


def check_uplink(site: str, uplink: Uplink) -> None:
    """Raises PermanentError for a rate or latency out of range."""
    for name, value, most, least in (
        ("up_mbps", uplink.up_mbps, MOST_MBPS, LEAST_MBPS),
        ("down_mbps", uplink.down_mbps, MOST_MBPS, LEAST_MBPS),
        ("latency_ms", uplink.latency_ms, MOST_LATENCY_MS, 0.0),
    ):
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise PermanentError(
                f"cannot shape the uplink of {site}: {name} {value:g} must be {least:g} to {most:g}"
            )


def check_wan(wan: Wan, sites: Sequence[str]) -> None:
    """Raises PermanentError for an unknown site, or a rate or latency out of range."""
    names = ", ".join(sites) or "no sites"
    lans = [site for lan in wan.lans for site in lan]
    hosts = [] if wan.host == EVERYWHERE else [wan.host]
    for site in (*wan.uplinks, *lans, *hosts):
        if site not in sites:
            raise PermanentError(f"cannot give {site} a place in the WAN: this fog has {names}")
    for site in lans:
        if lans.count(site) > 1:
            raise PermanentError(f"cannot put {site} into two LANs: name it once in `lans`")
    for site, uplink in wan.uplinks.items():
        check_uplink(site, uplink)


def parse_wan_state(data: dict[str, Any]) -> WanState:
    """Parse the state as stored in fog.json."""
    wan = data["wan"]
    return WanState(
        Wan(
            {site: Uplink(**uplink) for site, uplink in wan["uplinks"].items()},
            tuple(tuple(lan) for lan in wan["lans"]),
            wan["host"],
        ),
        data["mode"],
        data["network"],
        tuple(data["down"]),
        data.get("relays", {}),
    )
