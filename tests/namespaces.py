"""Sockets of this process in other network namespaces, and a WAN without any site on it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from speck.fog.process import Command, Process, spawn, wait_until
from speck.fog.wan.forward import enter_namespace
from speck.fog.wan.model import LinkStatus, Uplink, Wan, WanState
from speck.fog.wan.namespaces import Network, explain_refusal
from speck.fog.wan.plan import DELAY


def needs_namespaces() -> None:
    """Skip where this process may not make a network, with the sentence that a user gets."""
    if (why := explain_refusal()) is not None:
        pytest.skip(why)


class Trial:
    """Sites without programs; their sockets are made in this process."""

    def __init__(self, folder: Path, sites: tuple[str, ...], wan: Wan) -> None:
        folder.mkdir(exist_ok=True)
        self.network = Network(folder)
        self.layout = self.network.layout(sites, WanState(wan, network=self.network.pick()))
        self.delay: Process | None = None

    def build(self) -> None:
        self.network.build(self.layout)
        argv = [sys.executable, "-m", "speck.fog.wan.delay", DELAY, str(self.network.table)]
        log = self.network.folder / "delay.log"
        command = Command("delay", argv, self.network.folder, log)
        self.delay = spawn(self.network.into_router(command))
        self._await_delay(self.delay)

    def _await_delay(self, delay: Process) -> None:
        log = self.network.folder / "delay.log"
        wait_until(
            lambda: self.network.table_applied, {"delay": delay}, "the delay element", [log], 30.0
        )

    def change(self, state: WanState) -> None:
        after = self.network.layout(self.layout.sites, state)
        self.network.change(self.layout, after)
        self.layout = after
        assert self.delay is not None
        self.delay.send(signal.SIGHUP)
        self._await_delay(self.delay)

    def shape(self, site: str, uplink: Uplink) -> None:
        self.change(self.layout.state.with_uplink(site, uplink))

    def bytes_up(self, site: str) -> int:
        (link,) = [each for each in self.links() if each.site == site]
        return link.up_bytes

    def links(self) -> list[LinkStatus]:
        return self.network.links(self.layout, delayed=True)

    @contextmanager
    def at(self, site: str) -> Iterator[str]:
        """Sockets that are made in the block are the site's ("": this machine's); its address."""
        if not site:
            yield self.layout.root
            return
        with enter_namespace(self.network.site_file(site)):
            yield self.layout.address(site)

    def udp(self, site: str, port: int = 7000) -> socket.socket:
        with self.at(site) as address:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind((address, port))
            sock.settimeout(20.0)
            return sock

    def tcp(self, site: str, to: str) -> tuple[socket.socket, socket.socket]:
        """A connection from one site to another: both ends."""
        with self.at(to) as address:
            server = socket.create_server((address, 0))
        with closing(server), self.at(site) as own:
            near = socket.create_connection(server.getsockname(), 20.0, (own, 0))
            far, _ = server.accept()
            far.settimeout(20.0)
        return near, far


def left_behind(network: Network) -> list[str]:
    """Namespaces and devices of a network that are still there."""
    return [
        *(path.name for path in Path("/run/netns").glob(f"{network.names.prefix}*")),
        *(path.name for path in Path("/sys/class/net").glob(f"{network.names.device}*")),
    ]
