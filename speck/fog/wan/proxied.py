"""A WAN of relayed connections, for users without root: its ports, its table and its traffic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from speck.errors import PermanentError
from speck.fog.ports import pick_port
from speck.fog.process import Command
from speck.fog.site_record import SiteRecord
from speck.fog.wan.model import EVERYWHERE, LinkStatus, Wan, WanState
from speck.model.values import JsonObject

MOST_SITES = 30  # each pair takes a port
VIA = "SPECK_MQTT_VIA"


def check_proxied(wan: Wan, sites: Sequence[str]) -> None:
    """Raises PermanentError for a WAN that requires namespaces."""
    if wan.host != EVERYWHERE:
        raise PermanentError(
            f"cannot put this machine at {wan.host} with proxies: omit `host`, or use"
            " --wan-mode namespaces"
        )
    if len(sites) > MOST_SITES:
        raise PermanentError(
            f"cannot make a WAN of proxies for {len(sites)} sites: use at most {MOST_SITES}, or"
            " --wan-mode namespaces"
        )


def pick_relays(wan: Wan, hosts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """A free port at each site (site -> address) for each other site that is not in its LAN."""
    relays: dict[str, dict[str, int]] = {}
    for site, host in hosts.items():
        ports = relays[site] = dict[str, int]()
        for to in hosts:
            if to != site and to not in wan.peers(site):
                port = pick_port(host)
                while port in ports.values():  # nothing listens there yet
                    port = pick_port(host)
                ports[to] = port
    return relays


def table(state: WanState, sites: Sequence[SiteRecord]) -> JsonObject:
    """The relay's table."""
    by_name = {site.name: site for site in sites}
    return {
        "links": {
            site.name: {
                "up_mbps": state.wan.uplink(site.name).up_mbps,
                "down_mbps": state.wan.uplink(site.name).down_mbps,
                "latency_ms": state.wan.uplink(site.name).latency_ms,
                "passes": site.name not in state.down,
            }
            for site in sites
        },
        "pairs": [
            {
                "site": site,
                "to": to,
                "listen": [by_name[site].host, port],
                "target": [by_name[to].host, by_name[to].broker_port],
            }
            for site, ports in state.relays.items()
            for to, port in ports.items()
        ],
    }


def route_brokers(
    site: SiteRecord, state: WanState, sites: Sequence[SiteRecord], to: Command
) -> Command:
    """The command, with the addresses of the relays to other sites' brokers in its environment."""
    ports = state.relays.get(site.name, {})
    ways = [
        f"{other.host}:{other.broker_port}={site.host}:{ports[other.name]}"
        for other in sites
        if other.name in ports
    ]
    return replace(to, env={**to.env, VIA: ",".join(ways)})


def links(
    state: WanState, sites: Sequence[SiteRecord], counts: Path, *, runs: bool
) -> list[LinkStatus]:
    """The status of every site's uplink; `runs` tells whether the relay runs."""
    try:
        bytes_by_site = json.loads(counts.read_text())
    except (OSError, ValueError):
        bytes_by_site = {}
    statuses = []
    for site in sites:
        uplink = state.wan.uplink(site.name)
        up, down = bytes_by_site.get(site.name, (0, 0))
        statuses.append(
            LinkStatus(
                site.name,
                runs and site.name not in state.down,
                up,
                down,
                uplink.up_mbps,
                uplink.down_mbps,
                uplink.latency_ms,
                0,
                0,
            )
        )
    return statuses
