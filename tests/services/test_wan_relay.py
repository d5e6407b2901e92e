"""The WAN without root: a relay between engines and other sites' brokers."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from speck.fog.ports import pick_port
from speck.fog.process import Command, Process, spawn, wait_until
from speck.fog.site_record import SiteRecord
from speck.fog.wan import LinkStatus, Uplink, Wan, WanState, proxied
from speck.fog.wan.namespaces import Network, write_table
from tests.waiting import wait_for

HOST = "127.0.0.1"


class Relayed:
    """A relay between the sites `a` and `b`, and a listener in place of b's broker."""

    def __init__(self, folder: Path) -> None:
        self.server = socket.create_server((HOST, 0))
        self.sites = (
            SiteRecord("a", "edge", HOST, 1, 1, 1),
            SiteRecord("b", "cloud", HOST, self.server.getsockname()[1], 1, 1),
        )
        self.network = Network(folder)
        self.log = folder / "relay.log"
        relays = {"a": {"b": pick_port(HOST)}}
        self.state = WanState(Wan({"a": Uplink(1, 1, 10)}), "proxy", relays=relays)
        write_table(self.network.table, proxied.table(self.state, self.sites))
        argv = [sys.executable, "-m", "speck.fog.wan.relay", str(self.network.table)]
        self.process: Process = spawn(Command("relay", argv, folder, self.log))
        self._await()

    def _await(self) -> None:
        processes = {"relay": self.process}
        wait_until(lambda: self.network.table_applied, processes, "the relay", [self.log], 30.0)

    def change(self, state: WanState) -> None:
        self.state = state
        write_table(self.network.table, proxied.table(state, self.sites))
        self.process.send(signal.SIGHUP)
        self._await()

    def join(self) -> tuple[socket.socket, socket.socket]:
        near = socket.create_connection((HOST, self.state.relays["a"]["b"]), 20.0)
        far, _ = self.server.accept()
        far.settimeout(20.0)
        return near, far

    def links(self) -> list[LinkStatus]:
        counts = self.network.table.with_suffix(".counts")
        return proxied.links(self.state, self.sites, counts, runs=self.process.running)


@pytest.fixture
def relayed(tmp_path: Path) -> Iterator[Relayed]:
    pair = Relayed(tmp_path)
    yield pair
    pair.process.kill()
    pair.server.close()


def test_bytes_pass_and_are_counted(relayed: Relayed) -> None:
    near, far = relayed.join()
    near.sendall(b"question")
    assert far.recv(99) == b"question"
    far.sendall(b"answer")
    assert near.recv(99) == b"answer"
    wait_for(lambda: relayed.links()[0].down_bytes, "the counts")
    a, b = relayed.links()
    assert (a.up_bytes, a.down_bytes) == (8, 6) == (b.down_bytes, b.up_bytes)
    near.close()
    assert far.recv(9) == b""


@pytest.mark.parametrize("upwards", [True, False])
def test_a_transfer_comes_whole(relayed: Relayed, upwards: bool) -> None:
    """At which rate: tests/unit/fog/wan/test_relay.py."""
    near, far = relayed.join()
    source, end = (near, far) if upwards else (far, near)
    sent = bytes(range(250)) * 500
    sender = threading.Thread(target=source.sendall, args=(sent,))
    sender.start()
    payloads = b""
    while len(payloads) < len(sent):
        payloads += end.recv(65536)
    sender.join()
    assert payloads == sent


def test_a_link_that_is_down_holds_everything_and_breaks_nothing(relayed: Relayed) -> None:
    near, far = relayed.join()
    relayed.change(relayed.state.with_link("b", False))
    assert [link.up for link in relayed.links()] == [True, False]
    near.sendall(b"while")
    with closing(socket.create_connection((HOST, relayed.state.relays["a"]["b"]), 20.0)) as new:
        new.sendall(b"new")
        far.settimeout(0.5)
        with pytest.raises(TimeoutError):
            far.recv(99)
        relayed.change(relayed.state.with_link("b", True))
        far.settimeout(20.0)
        assert far.recv(99) == b"while"
        other, _ = relayed.server.accept()
        with closing(other):
            other.settimeout(20.0)
            assert other.recv(99) == b"new"


def test_it_ends_with_its_table(relayed: Relayed) -> None:
    relayed.network.table.unlink()
    wait_for(lambda: not relayed.process.running, "the relay to end")
    assert [link.up for link in relayed.links()] == [False, False]


def test_a_peer_that_is_gone_is_told(relayed: Relayed) -> None:
    near, far = relayed.join()
    far.close()
    assert near.recv(9) == b""
    near.close()
    relayed.server.close()  # nobody listens any more
    with closing(socket.create_connection((HOST, relayed.state.relays["a"]["b"]), 20.0)) as new:
        assert new.recv(9) == b""
