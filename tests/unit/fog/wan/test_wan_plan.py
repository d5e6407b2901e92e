from __future__ import annotations

import ipaddress
from pathlib import Path

from speck.fog.wan.model import Uplink, Wan, WanState
from speck.fog.wan.plan import Layout, Names, network, queue

SITES = ("edge-a", "edge-b", "cloud")
AWAY = {"edge-a": Uplink(2, 10, 9.3), "edge-b": Uplink(0.1, None, 0)}


def layout(wan: Wan, *down: str) -> Layout:
    return Layout(Names("0123abcd"), SITES, WanState(wan, network="198.18.7", down=down))


def test_names_follow_from_the_folder() -> None:
    one, other = Names.of(Path("/x/fog")), Names.of(Path("/y/fog"))
    assert one == Names.of(Path("/x/fog"))
    assert one.prefix != other.prefix
    assert len(one.lan(249)) <= 15  # what the kernel takes
    assert one.site("router") != one.router


def test_networks_are_those_for_measurements() -> None:
    networks = {ipaddress.ip_network(f"{network(number)}.0/24") for number in range(512)}
    assert len(networks) == 512
    assert all(each.subnet_of(ipaddress.ip_network("198.18.0.0/15")) for each in networks)


def test_queues() -> None:
    assert queue("wan", None) == "qdisc replace dev wan root handle 2: pfifo limit 1000"
    slow = "qdisc replace dev wan root handle 1: tbf rate 100000bit burst 3028 limit 18168"
    assert queue("wan", 0.1) == slow
    fast = "qdisc replace dev w0 root handle 1: tbf rate 100000000bit burst 25000 limit 3775000"
    assert queue("w0", 100) == fast


def test_this_machine_is_everywhere_by_default() -> None:
    built = layout(Wan(AWAY)).build()
    outside = [line for batch in built if batch.namespace == "" for line in batch.lines]
    assert [line for line in outside if line.startswith("route")] == [
        f"route add 198.18.7.{number + 1}/32 dev sk0123abcd{number} src 198.18.7.253"
        for number in range(3)
    ]
    assert not [line for line in outside if "sysctl" in line or "rule" in line]
    forwarding = {batch.namespace for batch in built if "net/ipv4/ip_forward=1" in batch.lines}
    assert forwarding == {"speck-0123abcd-router."}


def test_this_machine_at_a_site() -> None:
    built = layout(Wan(AWAY, host="cloud")).build()
    outside = [line for batch in built if batch.namespace == "" for line in batch.lines]
    assert [line for line in outside if line.startswith("route")] == [
        "route add 198.18.7.3/32 dev sk0123abcd2 src 198.18.7.253",
        "route add 198.18.7.1/32 via 198.18.7.3 dev sk0123abcd2 onlink src 198.18.7.253",
        "route add 198.18.7.2/32 via 198.18.7.3 dev sk0123abcd2 onlink src 198.18.7.253",
    ]
    (routing,) = [batch for batch in built if "tuntap" in " ".join(batch.lines)]
    assert "route add 198.18.7.253/32 via 198.18.7.3 onlink dev w2 table main" in routing.lines
    assert not any(" peer" in line for batch in built for line in batch.lines if "dev peer" in line)


def test_only_what_is_far_goes_to_the_delay_element() -> None:
    assert layout(Wan(AWAY)).rules() == [
        "pref 30 iif delay lookup main",
        "pref 40 from 198.18.7.1 lookup 100",
        "pref 40 to 198.18.7.1 lookup 100",
    ]
    assert layout(Wan(AWAY)).latencies_ms() == {
        "198.18.7.1": 9.3,
        "198.18.7.2": 0,
        "198.18.7.3": 0.0,
    }


def test_a_link_that_is_down_swallows_packets_before_anything_else() -> None:
    rules = layout(Wan(AWAY, host="edge-b"), "edge-b").rules()
    assert rules[:4] == [
        "pref 20 from 198.18.7.2 blackhole",
        "pref 20 to 198.18.7.2 blackhole",
        "pref 20 from 198.18.7.253 blackhole",
        "pref 20 to 198.18.7.253 blackhole",
    ]


def test_sites_of_one_lan_need_no_uplink() -> None:
    plan = layout(Wan(AWAY, (("edge-a", "cloud"),), host="cloud"))
    assert plan.rules()[:2] == ["pref 10 iif p0 lookup 101", "pref 10 iif p2 lookup 101"]
    (inside,) = [
        batch.lines
        for batch in plan.build()
        if batch.tool == "ip" and batch.namespace == "speck-0123abcd-edge-a"
    ]
    assert [line for line in inside if "dev peer onlink" in line] == [
        "route add 198.18.7.3/32 via 198.18.7.254 dev peer onlink src 198.18.7.1",
        "route add 198.18.7.253/32 via 198.18.7.254 dev peer onlink src 198.18.7.1",
    ]
