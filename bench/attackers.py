"""Clients that mean no good, each kind in a process of its own: see bench.overload.

    python -m bench.attackers ATTACK URL TOKEN

Prints a line when it has begun, and goes on until it is ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests

from bench import expanding

PAUSE_S = 0.2
"""Before a connection that was closed is opened again, or a call that was refused as one too many
is made again: these attacks are many clients that wait, not a flood of requests."""
_TOO_MANY = (429, 503)

DAMAGE = b'{"name": "x", "jobs": [' + b"{}," * 10_000 + b"{}]}"
UNKNOWN_KEYS = b"".join(b"unknown_key_%d: 1\n" % number for number in range(40_000))


@dataclass(frozen=True, slots=True)
class Hold:
    """Connections that send `first`, then `more` every second, and read `reads` bytes then."""

    count: int
    first: bytes = b""
    more: bytes = b""
    reads: int = 0


def _upload(token: str) -> bytes:
    head = f"PUT /artifacts/{'a' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n"
    return f"{head}Authorization: Bearer {token}\r\n\r\n".encode()


def _export(token: str) -> bytes:
    head = "GET /metrics/export?format=csv HTTP/1.1\r\nHost: x\r\n"
    return f"{head}Authorization: Bearer {token}\r\n\r\n".encode()


def list_holds(attack: str, token: str) -> list[Hold]:
    """The connections of an attack that needs nothing else."""
    return {
        "one byte": [Hold(200, b"G")],
        "slow headers": [Hold(200, b"GET /jobs HTTP/1.1\r\nX: ", b"x")],
        "slow bodies": [
            Hold(100, _upload("wrong"), b"x"),
            Hold(100, _upload(token), b"x"),
            Hold(100, b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n", b"x"),
        ],
        "slow readers": [Hold(200, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 60, reads=1)],
        "idle connections": [Hold(1000)],
        "readers of exports": [Hold(70, _export(token), reads=250_000)],
        "descriptors": [Hold(3000)],
    }.get(attack, [])


async def hold(address: tuple[str, int], what: Hold) -> None:
    """One such connection, opened again whenever it is closed."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as connection, suppress(OSError):
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(connection, address)
            await loop.sock_sendall(connection, what.first)
            while True:
                if what.reads:
                    await asyncio.sleep(1.0)
                    data = await loop.sock_recv(connection, what.reads)
                else:
                    data = await _listen(loop, connection, what.more)
                if not data:
                    break
        await asyncio.sleep(PAUSE_S)


async def _listen(loop: asyncio.AbstractEventLoop, connection: socket.socket, more: bytes) -> bytes:
    """What comes, while `more` is sent every second."""
    answer = asyncio.ensure_future(loop.sock_recv(connection, 65536))
    while not answer.done():
        await asyncio.wait([answer], timeout=1.0)
        if more and not answer.done():
            try:
                await loop.sock_sendall(connection, more)
            except OSError:
                answer.cancel()
                raise
    return answer.result()


async def hold_all(address: tuple[str, int], kinds: list[Hold]) -> None:
    """All of them, for ever."""
    tasks = [
        asyncio.ensure_future(hold(address, kind)) for kind in kinds for _ in range(kind.count)
    ]
    await asyncio.sleep(1.0)
    print("begun", flush=True)
    await asyncio.gather(*tasks)


class Caller:
    """Requests that are well-formed, with a token that is valid."""

    def __init__(self, url: str, token: str):
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    def call(self, method: str, path: str, body: bytes = b"", media: str = "") -> None:
        """One request; how it is answered does not matter."""
        headers = {**self._headers, **({"Content-Type": media} if media else {})}
        with suppress(requests.RequestException):
            url = self.url + path
            answer = requests.request(method, url, data=body, headers=headers, timeout=120)
            if answer.status_code in _TOO_MANY:
                time.sleep(PAUSE_S)

    def check_sites(self) -> None:
        """A site whose engine does not answer."""
        self.call("GET", "/sites/hung/check")

    def plan_at_hanging_site(self) -> None:
        """A dry run that has to ask an engine that does not answer."""
        job = {
            "job_name": "h",
            "site": "hung",
            "source_topic": "hi",
            "sink_topic": "ho",
            "entry_class": "package.Job",
            "job_path": "a.jar",
        }
        body = json.dumps({"name": "hc", "jobs": [job]}).encode()
        self.call("POST", "/compositions?dry_run=true", body, "application/json")

    def send_documents(self) -> None:
        """Documents with thousands of faults."""
        self.call("POST", "/compositions?dry_run=true", DAMAGE, "application/json")
        self.call("POST", "/compositions?dry_run=true", UNKNOWN_KEYS, "application/yaml")

    def send_defaults(self) -> None:
        """Compositions that are much larger with their defaults written out, and what is made of
        the largest that is taken."""
        self.call("POST", "/compositions", expanding.large_default(), "application/json")
        self.call("POST", "/compositions", expanding.largest_default(), "application/json")
        for path in ("", "/plan", "/graph"):
            self.call("GET", f"/compositions/largest{path}")

    def send_dense_documents(self) -> None:
        """Documents of very many values."""
        self.call("POST", "/compositions?dry_run=true", expanding.dense_document(), "text/yaml")

    def send_archives(self) -> None:
        """Archives that describe themselves in two ways."""
        self.put_artifact(expanding.decoy_archive())

    def send_programs(self) -> None:
        """Programs that Python's parser is slow with, or makes much of."""
        self.put_artifact(expanding.slow_program())
        self.put_artifact(expanding.large_program())

    def put_artifact(self, content: bytes) -> None:
        """Send an artifact."""
        self.call("PUT", f"/artifacts/{hashlib.sha256(content).hexdigest()}", content, "text/plain")

    def add_engine(self) -> None:
        """Register a site whose engine means no good."""
        broker = {"kind": "memory", "address": "tcp://hostile:1883"}
        site = {"name": "hostile", "tier": "edge", "broker": broker}
        site |= {"spe": {"kind": "flink", "address": expanding.begin_engine()}}
        self.call("POST", "/sites", json.dumps(site).encode(), "application/json")

    def read_engine(self) -> None:
        """What makes the service ask that engine."""
        self.call("GET", "/sites/hostile?fresh=true")
        self.call("GET", "/sites/hostile/check")

    def import_and_analyse(self) -> None:
        """All metrics out and in again, beside an analysis of them."""
        window = json.dumps({"window_s": 7 * 86400.0, "master": "local[2]"}).encode()
        self.call("POST", "/analyses", window, "application/json")
        with suppress(requests.RequestException):
            answer = requests.get(f"{self.url}/metrics/export", headers=self._headers, timeout=120)
            if answer.ok:
                media = "application/vnd.apache.parquet"
                self.call("POST", "/metrics/import", answer.content, media)


def find_callers(attack: str, caller: Caller) -> tuple[int, Callable[[], None]] | None:
    """How many call what, again and again; None for attacks of connections alone."""
    return {
        "checks of a hanging engine": (40, caller.check_sites),
        "dry runs at a hanging engine": (60, caller.plan_at_hanging_site),
        "hostile documents": (4, caller.send_documents),
        "import and analysis": (1, caller.import_and_analyse),
        "large defaults": (4, caller.send_defaults),
        "dense documents": (4, caller.send_dense_documents),
        "archives with a decoy": (4, caller.send_archives),
        "slow programs": (8, caller.send_programs),
        "a hostile engine": (8, caller.read_engine),
    }.get(attack)


def _repeat(action: Callable[[], None]) -> None:
    while True:
        action()


def main() -> None:
    attack, url, token = sys.argv[1:4]
    calls = find_callers(attack, Caller(url, token))
    if calls is None:
        address = urlsplit(url)
        assert address.hostname is not None and address.port is not None
        asyncio.run(hold_all((address.hostname, address.port), list_holds(attack, token)))
        return
    count, action = calls
    if attack == "a hostile engine":
        Caller(url, token).add_engine()
    for _ in range(count):
        threading.Thread(target=_repeat, args=(action,), daemon=True).start()
    print("begun", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
