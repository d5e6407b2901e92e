"""The network of a fog as commands for network namespaces: pure, so that tests can read them.

    site a: wan --- w0 router w1 --- wan :site b      each site and the router in a namespace
            lan --- (this machine) --- lan            root namespace; not counted, not shaped
            peer -- p0 router p1 --- peer             only between sites of one LAN

The router sends packets with latency to the TUN device `delay` (see delay.py). Only packets of the
sites' programs cross an uplink: there is no IPv6, and the neighbours are configured, so no ARP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from speck.fog.wan.model import EVERYWHERE, Wan, WanState

ROOT = 253
ROUTER = 254
DELAY = "delay"
FRAME = 1514  # bytes of a full packet with its Ethernet header
QUEUE_S = 0.3
LEAST_QUEUE = 10 * FRAME
BURST_S = 0.002
LEAST_BURST = 2 * FRAME
_DELAYED, _PEERS = 100, 101  # routing tables of the router


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines for one tool in one namespace ("" for this machine's own). A line for `ip` or `tc` is
    what follows the program's name; a line for `sysctl` is path=value."""

    tool: str
    namespace: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a fog's namespaces and devices, derived from its folder, so that they can be
    found after any crash."""

    digest: str

    @classmethod
    def of(cls, folder: Path) -> Names:
        return cls(hashlib.sha256(str(folder).encode()).hexdigest()[:8])

    @property
    def prefix(self) -> str:
        """The prefix of every namespace's name."""
        return f"speck-{self.digest}-"

    @property
    def router(self) -> str:
        return f"{self.prefix}router."  # no site's name ends so

    @property
    def device(self) -> str:
        """The prefix of devices in this machine's own namespace (names have at most 15
        characters)."""
        return f"sk{self.digest}"

    def site(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def lan(self, number: int) -> str:
        return f"{self.device}{number}"

    @property
    def first_network(self) -> int:
        """The first network of 256 addresses in 198.18.0.0/15 to try, 0 to 511."""
        return int(self.digest, 16) % 512


def network(number: int) -> str:
    """The first three bytes of network `number` (0..511) in 198.18.0.0/15, which RFC 2544 reserves
    for measurements: no host on the Internet has such an address."""
    return f"198.{18 + number // 256}.{number % 256}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole network: names, sites in order, and the desired WAN."""

    names: Names
    sites: Sequence[str]
    state: WanState

    @property
    def wan(self) -> Wan:
        return self.state.wan

    def address(self, site: str) -> str:
        return f"{self.state.network}.{1 + self.sites.index(site)}"

    @property
    def root(self) -> str:
        """This machine's own address in the fog's network."""
        return f"{self.state.network}.{ROOT}"

    @property
    def _router(self) -> str:
        return f"{self.state.network}.{ROUTER}"

    @property
    def _local_sites(self) -> list[str]:
        """The sites whose LAN includes this machine."""
        return list(self.sites) if self.wan.host == EVERYWHERE else [self.wan.host]

    def _behind(self, site: str) -> list[str]:
        """The addresses behind a site's uplink."""
        return [self.address(site), *([self.root] if site == self.wan.host else [])]

    def build(self) -> list[Batch]:
        """The commands that build everything from scratch."""
        names = [self.names.router, *map(self.names.site, self.sites)]
        batches = [Batch("ip", "", tuple(f"netns add {name}" for name in names))]
        batches += [Batch("sysctl", name, tuple(self._settings(name))) for name in names]
        batches.append(Batch("ip", "", tuple(self._links())))
        batches += [
            Batch("ip", self.names.site(site), tuple(self._inside(site))) for site in self.sites
        ]
        batches.append(Batch("ip", self.names.router, tuple(self._routing())))
        batches.append(Batch("ip", "", tuple(self._outside())))
        for site in self.sites:
            batches += self.shaping(site)
        return batches

    def shaping(self, site: str) -> list[Batch]:
        """The commands that set or change the rates of one site's uplink."""
        uplink, number = self.wan.uplink(site), self.sites.index(site)
        return [
            Batch("tc", self.names.site(site), (queue("wan", uplink.up_mbps),)),
            Batch("tc", self.names.router, (queue(f"w{number}", uplink.down_mbps),)),
        ]

    def rules(self) -> list[str]:
        """The router's `ip rule`s, in order: packets that cross no uplink, packets of links that
        are down, packets that were delayed, packets to delay."""
        rules = []
        for number, site in enumerate(self.sites):
            if self.wan.peers(site):
                rules.append(f"pref 10 iif p{number} lookup {_PEERS}")
        for site in self.state.down:
            for address in self._behind(site):
                rules += [f"pref 20 from {address} blackhole", f"pref 20 to {address} blackhole"]
        rules.append(f"pref 30 iif {DELAY} lookup main")
        for site in self.sites:
            for address in self._behind(site) if self.wan.uplink(site).latency_ms > 0 else ():
                rules += [
                    f"pref 40 from {address} lookup {_DELAYED}",
                    f"pref 40 to {address} lookup {_DELAYED}",
                ]
        return rules

    def latencies_ms(self) -> dict[str, float]:
        """The delay element's table: address -> one-way latency to the core."""
        return {
            address: self.wan.uplink(site).latency_ms
            for site in self.sites
            for address in self._behind(site)
        }

    def _settings(self, name: str) -> Iterator[str]:
        """Kernel settings: without rp_filter, packets that come by LAN and WAN do not count as
        forged; IPv6 would send packets of its own."""
        for which in ("all", "default"):
            yield f"net/ipv6/conf/{which}/disable_ipv6=1"
            yield f"net/ipv4/conf/{which}/rp_filter=0"
            yield f"net/ipv4/conf/{which}/send_redirects=0"
        if name in (self.names.router, self.names.site(self.wan.host)):
            yield "net/ipv4/ip_forward=1"

    def _links(self) -> Iterator[str]:
        for number, site in enumerate(self.sites):
            here = self.names.site(site)
            yield _veth("wan", here, f"w{number}", self.names.router, number, 1)
            if site in self._local_sites:
                yield _veth("lan", here, self.names.lan(number), "", number, 2)
            if self.wan.peers(site):
                yield _veth("peer", here, f"p{number}", self.names.router, number, 3)

    def _inside(self, site: str) -> Iterator[str]:
        """Addresses and routes in a site's namespace."""
        number, own = self.sites.index(site), self.address(site)
        yield "link set lo up"
        yield f"address add {own}/32 dev wan"
        yield from _up("wan")
        yield _neighbour("wan", self._router, number, 1, far=True)
        # no default route: DNS queries to a remote resolver would be counted on the uplink
        yield f"route add {self.state.network}.0/24 via {self._router} dev wan onlink src {own}"
        if site in self._local_sites:
            yield from _up("lan")
            yield _neighbour("lan", self.root, number, 2, far=True)
            yield f"route add {self.root}/32 dev lan src {own}"
        if peers := self.wan.peers(site):
            yield from _up("peer")
            yield _neighbour("peer", self._router, number, 3, far=True)
            for address in (address for peer in peers for address in self._behind(peer)):
                yield f"route add {address}/32 via {self._router} dev peer onlink src {own}"

    def _routing(self) -> Iterator[str]:
        yield "link set lo up"
        yield f"tuntap add dev {DELAY} mode tun"
        yield f"link set {DELAY} up mtu 1500 txqueuelen 10000"
        yield f"route add default dev {DELAY} table {_DELAYED}"
        for number, site in enumerate(self.sites):
            own = self.address(site)
            for device, kind, table in ((f"w{number}", 1, "main"), (f"p{number}", 3, str(_PEERS))):
                if kind == 3 and not self.wan.peers(site):
                    continue
                yield f"address add {self._router}/32 dev {device}"
                yield from _up(device)
                yield _neighbour(device, own, number, kind)
                for address in self._behind(site):
                    via = f"via {own} onlink " if address != own else ""
                    yield f"route add {address}/32 {via}dev {device} table {table}"
        for rule in self.rules():
            yield f"rule add {rule}"

    def _outside(self) -> Iterator[str]:
        """Our devices in this machine's own namespace, and routes over them only."""
        for site in self._local_sites:
            number = self.sites.index(site)
            device = self.names.lan(number)
            yield f"link set {device} addrgenmode none"
            yield f"address add {self.root}/32 dev {device}"
            yield from _up(device)
            yield _neighbour(device, self.address(site), number, 2)
            yield f"route add {self.address(site)}/32 dev {device} src {self.root}"
        if self.wan.host != EVERYWHERE:
            gateway = self.address(self.wan.host)
            device = self.names.lan(self.sites.index(self.wan.host))
            for site in self.sites:
                if site != self.wan.host:
                    yield (
                        f"route add {self.address(site)}/32 via {gateway} dev {device} onlink"
                        f" src {self.root}"
                    )


def queue(device: str, mbps: float | None) -> str:
    """The queue of a modem at one end: packets leave at the rate, up to 0.3 s of it wait (at least
    10 full packets, or TCP could not use a slow link), and the rest is dropped. A burst is what
    passes in 2 ms (at least 2 full packets)."""
    if mbps is None:
        return f"qdisc replace dev {device} root handle 2: pfifo limit 1000"
    rate = mbps * 1e6 / 8  # bytes a second
    burst = max(LEAST_BURST, round(rate * BURST_S))
    limit = burst + max(LEAST_QUEUE, round(rate * QUEUE_S))
    bits = round(mbps * 1e6)
    return (
        f"qdisc replace dev {device} root handle 1: tbf rate {bits}bit burst {burst} limit {limit}"
    )


def _veth(near: str, here: str, far: str, there: str, number: int, kind: int) -> str:
    peer = f"{far} address {_mac(number, kind)}"
    return (
        f"link add {near} address {_mac(number, kind, far=True)} netns {here} type veth"
        f" peer name {peer}" + (f" netns {there}" if there else "")
    )


def _mac(number: int, kind: int, *, far: bool = False) -> str:
    """The address of the site's end of a pair (`far`), or of the other end."""
    return f"02:53:4b:{number:02x}:{kind:02x}:{int(far):02x}"


def _neighbour(device: str, address: str, number: int, kind: int, *, far: bool = False) -> str:
    """A neighbour entry; seen from the site (`far`), the neighbour has the other end."""
    mac = _mac(number, kind, far=not far)
    return f"neighbour add {address} lladdr {mac} dev {device} nud permanent"


def _up(device: str) -> Iterator[str]:
    # single packets, as on a wire: a rate cannot be kept with 64 kB at once
    yield f"link set {device} gso_max_segs 1 mtu 1500"
    yield f"link set {device} up"
