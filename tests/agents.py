"""Real agents over folders of made-up state, and a real service of memory sites that they ask."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from werkzeug.serving import WSGIRequestHandler, make_server

from speck.api.app import create_app
from speck.binding import Transfer, TransferProgress
from speck.errors import TransientError
from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.serving import serving
from tests.waiting import wait_for

LIMIT_S = 240.0
JOB_ID = "ab" * 16


def write_state(
    folder: Path,
    checkpoint_id: int = 7,
    extra: dict[str, bytes] | None = None,
    *,
    tail: bytes = b"",
) -> Path:
    """A complete state as Flink leaves one: the head of `_metadata`, and other files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (extra or {}).items():
        (folder / name).write_bytes(content)
    head = struct.pack(">iiq", 0x4960672D, 6, checkpoint_id)
    (folder / "_metadata").write_bytes(head + b"inline" + tail)
    return folder


def large(mb: int) -> bytes:
    """Bytes that look like no others."""
    return os.urandom(1 << 20) * mb


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK

    def log(self, type: str, message: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def answering(service: Service, port: int = 0) -> Iterator[str]:
    """The service's own application behind a real HTTP server in this process."""
    server = make_server(
        "127.0.0.1", port, create_app(service), threaded=True, request_handler=_Quiet
    )
    server.daemon_threads = True
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@dataclass
class AgentProcess:
    """A `speck agent` in a process of its own."""

    site: str
    url: str
    state: Path
    options: Sequence[str] = ()
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "speck.cli", "agent", "--site", self.site]
        command += ["--service", self.url, "--state-folder", str(self.state), *self.options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def rss_mb(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss / 1e6)

    @property
    def peak_mb(self) -> float:
        """The highest it ever was; psutil does not tell that of Linux."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
        raise AssertionError("no VmHWM")


def heard(service: Service, *sites: str) -> None:
    """Wait until the sites' agents have reported."""
    wait_for(
        lambda: all(
            service.agents.commands.silent_s(site) is not None and service.agents.folder(site)
            for site in sites
        ),
        f"the agents of {sites}",
    )


def transfer(
    path: Path, identity: str = "t-1", source: str = "edge-a", target: str = "edge-b"
) -> Transfer:
    return Transfer(identity, "counter", JOB_ID, source, target, f"file://{path}")


def await_transfer(service: Service, move: Transfer, limit_s: float = LIMIT_S) -> TransferProgress:
    """Ask as the executor does, also again after transient errors, until it is over."""
    until = time.monotonic() + limit_s
    pause = threading.Event()
    while time.monotonic() < until:
        try:
            progress = service.agents.carry(move)
        except TransientError:
            pause.wait(0.05)
            continue
        if progress.done:
            return progress
        pause.wait(0.01)
    raise AssertionError(f"not carried in {limit_s:g} s")


@dataclass
class Field:
    """A service of edge-a and edge-b, whose agents a test starts."""

    service: Service
    url: str
    folder: Path
    agents: dict[str, AgentProcess] = field(default_factory=dict)

    def state(self, site: str) -> Path:
        return self.folder / site

    def start(self, site: str, *options: str) -> AgentProcess:
        self.agents[site] = AgentProcess(site, self.url, self.state(site), options)
        return self.agents[site]

    def start_both(self, *, direct: bool = True) -> None:
        self.start("edge-a")
        self.start("edge-b", *(["--listen", "127.7.7.2:0"] if direct else []))
        self.heard("edge-a", "edge-b")

    def heard(self, *sites: str) -> None:
        heard(self.service, *sites)


@contextmanager
def fields(folder: Path) -> Iterator[Field]:
    """Ends the agents that were started."""
    alone = [{**site_body(name), "labels": {}} for name in ("edge-a", "edge-b")]
    with memory_service(folder, alone) as service, answering(service) as url:
        field = Field(service, url, folder / "states")
        field.folder.mkdir()
        try:
            yield field
        finally:
            for agent in field.agents.values():
                agent.kill()
