from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

import pytest

from speck.fog.ports import accepts, pick_port, site_host


def test_sites_and_fogs_have_addresses_of_their_own() -> None:
    hosts = [site_host(Path("/srv/one"), number) for number in range(250)]
    assert len(set(hosts)) == 250
    assert all(ipaddress.ip_address(host).is_loopback for host in hosts)
    assert site_host(Path("/srv/two"), 0) not in hosts
    assert site_host(Path("/srv/one"), 0) == hosts[0]


def test_a_port_in_use_is_not_picked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert accepts("127.0.0.1", port)
        assert pick_port("127.0.0.1", port) not in (0, port)
    assert pick_port("127.0.0.1", port) == port
    assert not accepts("127.0.0.1", port)


@pytest.mark.parametrize(
    ("range_", "within"),
    [("20000 60999", range(10_000, 20_000)), ("1024 65535", range(1024, 65_536))],
)
def test_a_port_that_may_be_lent_to_a_client_is_not_picked_where_there_are_others(
    range_: str, within: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(range_)
    monkeypatch.setattr("speck.fog.ports._CLIENTS_FROM", tmp_path / "range")
    ports = [pick_port("127.0.0.1") for _ in range(50)]
    assert all(port in within for port in ports)
    assert len(set(ports)) > 20
