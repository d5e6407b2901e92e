"""A WAN in network namespaces: what the kernel and the delay element make of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.process import Command, spawn, wait_until
from speck.fog.wan.model import Uplink, Wan
from tests.namespaces import Trial, left_behind, needs_namespaces
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")
AWAY = {"edge-a": Uplink(2, 10, 9.3), "edge-b": Uplink(None, None, 4)}
UDP = 14 + 20 + 8  # bytes of headers: Ethernet, IP, UDP


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    needs_namespaces()
    network = Trial(tmp_path / "fog", SITES, Wan(AWAY))
    network.build()
    yield network
    network.network.remove()


def one_way_s(near: socket.socket, far: socket.socket) -> float:
    """The least of a few: what the network adds, not the scheduler."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        near.sendto(b"?", far.getsockname())
        far.recv(9)
        times.append(time.monotonic() - began)
    return min(times)


def test_sites_are_as_far_apart_as_was_set(trial: Trial) -> None:
    a, b, cloud, here = (trial.udp(site) for site in ("edge-a", "edge-b", "cloud", ""))
    assert one_way_s(a, b) >= 0.0133
    assert one_way_s(b, a) >= 0.0133
    assert one_way_s(cloud, a) >= 0.0093
    trial.shape("edge-a", Uplink(2, 10, 30))
    assert one_way_s(a, cloud) >= 0.030
    before = trial.links()
    assert one_way_s(here, a) < 0.030  # over the site's LAN
    assert one_way_s(a, here) < 0.030
    assert trial.links() == before  # and counted on no uplink


def test_every_byte_is_counted_once(trial: Trial) -> None:
    a, cloud = trial.udp("edge-a"), trial.udp("cloud")
    for _ in range(10):
        a.sendto(bytes(1000), cloud.getsockname())
        cloud.recv(2000)
    cloud.sendto(bytes(100), a.getsockname())
    a.recv(2000)
    edge, other, core = trial.links()
    assert (edge.up_bytes, edge.down_bytes) == (10 * (1000 + UDP), 100 + UDP)
    assert (core.up_bytes, core.down_bytes) == (edge.down_bytes, edge.up_bytes)
    assert (edge.packets, other.packets, core.packets, edge.dropped) == (11, 0, 11, 0)


def received_s(far: socket.socket, length: int) -> float:
    """How long `wanted` bytes take, from the first on."""
    first = len(far.recv(4096))
    began = time.monotonic()
    while first < length:
        first += len(far.recv(65536))
    return time.monotonic() - began


@pytest.mark.parametrize(("site", "to"), [("edge-a", "cloud"), ("cloud", "edge-a")])
def test_a_transfer_goes_at_the_rate_that_was_set(trial: Trial, site: str, to: str) -> None:
    trial.shape("edge-a", Uplink(1, 1, 5))
    near, far = trial.tcp(site, to)
    size = 250_000
    sender = threading.Thread(target=near.sendall, args=(bytes(size),))
    sender.start()
    rate_mbps = size * 8e-6 / received_s(far, size)
    sender.join()
    # of 1514 bytes on the wire 1448 are the sender's, and 1460 at most
    assert rate_mbps == pytest.approx(1448 / 1514, rel=0.1)


def test_what_finds_the_queue_full_is_dropped(trial: Trial) -> None:
    trial.shape("edge-a", Uplink(0.1, 10, 0))
    a, cloud = trial.udp("edge-a"), trial.udp("cloud")
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    for _ in range(100):
        a.sendto(bytes(1000), cloud.getsockname())
    cloud.recv(2000)
    assert trial.links()[0].dropped > 50


def test_a_link_that_is_down_swallows_packets_and_breaks_no_connection(trial: Trial) -> None:
    near, far = trial.tcp("edge-a", "cloud")
    near.sendall(b"before")
    assert far.recv(99) == b"before"
    trial.change(trial.layout.state.with_link("edge-a", False))
    assert [link.up for link in trial.links()] == [False, True, True]
    near.sendall(b"while")
    far.sendall(b"too")
    far.settimeout(0.5)
    with pytest.raises(TimeoutError):
        far.recv(99)
    trial.change(trial.layout.state.with_link("edge-a", True))
    far.settimeout(20.0)
    assert far.recv(99) == b"while"
    assert near.recv(99) == b"too"


def test_this_machine_at_a_site_is_behind_its_uplink(tmp_path: Path) -> None:
    needs_namespaces()
    wan = Wan({**AWAY, "cloud": Uplink(latency_ms=3)}, (("edge-b", "cloud"),), host="cloud")
    trial = Trial(tmp_path / "fog", SITES, wan)
    trial.build()
    try:
        a, b, cloud, here = (trial.udp(site) for site in (*SITES, ""))
        assert one_way_s(here, a) >= 0.0123
        assert one_way_s(a, here) >= 0.0123
        assert one_way_s(a, b) >= 0.0133
        counted = trial.bytes_up("cloud")
        assert counted == 5 * (1 + UDP)
        for one, other in ((here, cloud), (here, b), (b, here), (b, cloud), (cloud, b)):
            one.sendto(b"?", other.getsockname())
            assert other.recv(9) == b"?"
        assert trial.bytes_up("cloud") == counted  # a LAN needs no uplink
    finally:
        trial.network.remove()


def test_nothing_is_left_whatever_happened(trial: Trial) -> None:
    lonely = ["sleep", "600"]
    command = Command("sleep", lonely, trial.network.folder, trial.network.folder / "sleep.log")
    inside = spawn(trial.network.into("edge-b", command))
    assert trial.delay is not None
    trial.delay.kill()
    trial.network.table.unlink()
    assert trial.network.remove() == 1
    assert not inside.running
    assert left_behind(trial.network) == []
    assert trial.network.remove() == 0


def test_a_network_that_cannot_be_made_is_not_made_by_half(tmp_path: Path) -> None:
    needs_namespaces()
    trial = Trial(tmp_path / "fog", SITES, Wan(AWAY))
    address = f"{trial.layout.address('edge-b')}/32"
    subprocess.run(["ip", "route", "add", address, "dev", "lo"], check=True)
    try:
        with pytest.raises(PermanentError, match=r"^cannot set up the WAN: .*File exists"):
            trial.build()
        assert left_behind(trial.network) == []
        assert trial.network.pick() != trial.layout.state.network
    finally:
        subprocess.run(["ip", "route", "del", address, "dev", "lo"], check=True)


def test_sites_reach_a_service_on_loopback(trial: Trial, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        port = service.getsockname()[1]
        argv = [sys.executable, "-m", "speck.fog.wan.forward", trial.layout.root]
        argv += ["127.0.0.1", str(port), trial.layout.state.network]
        argv += [str(trial.network.router_file)]
        argv += [str(trial.network.site_file(site)) for site in SITES]
        log = tmp_path / "forward.log"
        command = Command("forward", argv, tmp_path, log)
        process = spawn(command)
        sockets: list[socket.socket] = []

        def joined() -> bool:
            with trial.at("edge-a"):
                near = socket.socket()
                near.settimeout(5.0)
                try:
                    near.connect(("127.0.0.1", port))
                except ConnectionRefusedError:
                    return False
                sockets.append(near)
                return True

        try:
            wait_until(joined, {"forward": process}, "the forwarder", [log], 20.0)
            (near,) = sockets
            far, _ = service.accept()
            near.sendall(b"question")
            assert far.recv(99) == b"question"
            far.sendall(b"answer")
            far.close()
            assert near.recv(99) == b"answer"
            assert near.recv(99) == b""
            trial.network.remove()
            wait_for(lambda: not process.running, "the forwarder to end by itself")
        finally:
            process.kill()
