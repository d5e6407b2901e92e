from __future__ import annotations

from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.process import Command
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog
from speck.fog.state import FogState, StateFile
from speck.fog.wan import Uplink, Wan, WanState, proxied

SITES = (
    SiteRecord("edge-a", "edge", "198.18.7.1", 1883, 8081, 8, 8090),
    SiteRecord("cloud", "cloud", "198.18.7.2", 1883, 8081, 16, 8090),
)
WAN = WanState(
    Wan({"edge-a": Uplink(2, 10, 9.3)}, (("edge-a", "cloud"),), "cloud"),
    network="198.18.7",
    down=("cloud",),
)


def fog_with(folder: Path, wan: WanState | None) -> Fog:
    state = FogState("single", 1.0, None, SITES, shared=False, wan=wan)
    StateFile(folder).save(state)
    assert StateFile(folder).load() == state
    return Fog(folder)


def test_the_service_learns_of_uplinks(tmp_path: Path) -> None:
    edge, cloud = fog_with(tmp_path, WAN).site_bodies()
    assert (edge["uplink_mbps"], edge["labels"]) == (2, {"latency_ms": "9.3"})
    assert "uplink_mbps" not in cloud
    assert cloud["labels"] == {"latency_ms": "0"}


def test_programs_enter_the_namespace_of_a_site(tmp_path: Path) -> None:
    fog = fog_with(tmp_path, WAN)
    assert fog.enter("cloud")[0] == "nsenter"
    assert fog.enter("cloud")[1].endswith("-cloud")
    with pytest.raises(PermanentError, match=r"^cannot find site 'edge-q' in this fog"):
        fog.enter("edge-q")


def test_links_of_a_fog_that_does_not_run_are_written_down(tmp_path: Path) -> None:
    fog = fog_with(tmp_path, WAN)
    fog.set_link("cloud", True)
    fog.set_link("edge-a", False)
    fog.shape("cloud", Uplink(latency_ms=3))
    state = StateFile(tmp_path).load()
    assert state is not None
    assert state.wan is not None
    assert state.wan.down == ("edge-a",)
    assert state.wan.wan.uplink("cloud") == Uplink(latency_ms=3)
    with pytest.raises(PermanentError, match="up_mbps -1 must be"):
        fog.shape("cloud", Uplink(up_mbps=-1))
    with pytest.raises(PermanentError, match="cannot find site 'edge-q'"):
        fog.set_link("edge-q", True)


def test_a_fog_without_a_wan(tmp_path: Path) -> None:
    fog = fog_with(tmp_path, None)
    assert fog.links() == []
    assert fog.enter("cloud") == []
    with pytest.raises(PermanentError, match=r"it has no WAN; bring the fog up with one"):
        fog.set_link("cloud", False)
    with pytest.raises(PermanentError, match="cannot use a WAN mode without a WAN"):
        fog.up(wan_mode="namespaces")
    with pytest.raises(PermanentError, match=r"^cannot find a fog in .*\(speck fog up\)$"):
        Fog(tmp_path / "none").enter("cloud")


def test_a_wan_of_other_sites_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot give edge-b a place in the WAN"):
        Fog(tmp_path).up(edges=1, wan=Wan({"edge-b": Uplink()}))
    assert list(tmp_path.iterdir()) == []


def test_proxies_have_limits(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot put this machine at cloud with proxies"):
        Fog(tmp_path).up(edges=1, wan=Wan(host="cloud"), wan_mode="proxy")
    with pytest.raises(PermanentError, match="proxies for 31 sites: use at most 30"):
        Fog(tmp_path).up(edges=30, wan=Wan(), wan_mode="proxy")


def test_engines_are_told_of_relays(tmp_path: Path) -> None:
    relays = {"edge-a": {"cloud": 9001}, "cloud": {"edge-a": 9002}}
    state = WanState(Wan(), "proxy", relays=relays, down=("cloud",))
    command = Command("engine", ["java"], tmp_path, tmp_path / "log", {"A": "1"})
    assert proxied.route_brokers(SITES[0], state, SITES, command).env == {
        "A": "1",
        "SPECK_MQTT_VIA": "198.18.7.2:1883=198.18.7.1:9001",
    }
    table = proxied.table(state, SITES)
    assert [link["passes"] for link in table["links"].values()] == [True, False]
    assert table["pairs"][1] == {
        "site": "cloud",
        "to": "edge-a",
        "listen": ["198.18.7.2", 9002],
        "target": ["198.18.7.1", 1883],
    }


def test_sites_of_one_lan_need_no_relay() -> None:
    hosts = {"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}
    relays = proxied.pick_relays(Wan(lans=(("a", "b"),)), hosts)
    assert {site: list(to) for site, to in relays.items()} == {
        "a": ["c"],
        "b": ["c"],
        "c": ["a", "b"],
    }
