from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from speck.fog.ports import accepts, pick_port, site_host


def test_sites_and_fogs_have_addresses_of_their_own() -> None:
    hosts = [site_host(Path("/srv/one"), number) for number in range(250)]
    assert len(set(hosts)) == 250
    assert all(ipaddress.ip_address(host).is_loopback for host in hosts)
    assert site_host(Path("/srv/two"), 0) not in hosts
    assert site_host(Path("/srv/one"), 0) == hosts[0]


def test_a_port_in_use_is_not_picked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert accepts("127.0.0.1", taken)
        assert pick_port("127.0.0.1", taken) not in (0, taken)
    assert pick_port("127.0.0.1", taken) == taken
    assert not accepts("127.0.0.1", taken)


def test_a_port_that_may_be_lent_to_a_client_is_not_picked() -> None:
    clients_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = [pick_port("127.0.0.1") for _ in range(50)]
    assert all(1024 <= port < clients_from for port in ports)
    assert len(set(ports)) > 40
