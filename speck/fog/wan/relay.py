"""The WAN without root: a relay through which engines reach other sites' brokers.

Each pair of sites has a port. Data that passes there is limited by the uplink of one site and the
downlink of the other, and delayed by the latency of both. The relay terminates TCP, so rates are
those of its payload; a link that is down passes nothing but breaks no connection. Traffic other
than MQTT (agents that transfer state) does not pass here.

This is a separate program (`python -m speck.fog.wan.relay`). It reads its table again on SIGHUP,
and then writes the table's version to `<table>.seen`; it writes the traffic so far to
`<table>.counts`. It ends by itself when the table is deleted.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_CHUNK = 16 * 1024
_LEAST_CHUNK = 512
_CHUNK_S = 0.02  # the time that one chunk takes on a slow link
_QUEUE_S = 0.3  # like a modem's queue; faster senders wait
_POLL_S = 0.2
_MOST_HELD = 1024  # chunks in one direction of a connection


@dataclass(slots=True)
class _Way:
    """One direction of an uplink; `free_at` is when everything accepted so far has passed."""

    bytes_per_s: float | None = None
    free_at: float = 0.0
    passed: int = 0

    def take(self, size: int, now: float) -> float:
        """Accept `size` bytes now; returns when they have passed."""
        self.passed += size
        if self.bytes_per_s is None:
            return now
        self.free_at = max(now, self.free_at) + size / self.bytes_per_s
        return self.free_at

    @property
    def chunk(self) -> int:
        if self.bytes_per_s is None:
            return _CHUNK
        return min(_CHUNK, max(_LEAST_CHUNK, int(self.bytes_per_s * _CHUNK_S)))


@dataclass(slots=True)
class Link:
    """A site's uplink."""

    up: _Way = field(default_factory=_Way)
    down: _Way = field(default_factory=_Way)
    latency_s: float = 0.0
    passing: asyncio.Event = field(default_factory=asyncio.Event)


class Relay:
    """All links of the table at `path`; tests pass their own `now` and `sleep`."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._now = now
        self._sleep = sleep
        self.links: dict[str, Link] = {}

    def load(self) -> None:
        """Read the table: rates, latencies, and links that are down."""
        table: dict[str, Any] = json.loads(self._path.read_text())
        for site, each in table["links"].items():
            link = self.links.setdefault(site, Link())
            for way, mbps in ((link.up, each["up_mbps"]), (link.down, each["down_mbps"])):
                way.bytes_per_s = None if mbps is None else mbps * 1e6 / 8
                way.free_at = 0.0
            link.latency_s = each["latency_ms"] / 1000
            (link.passing.set if each["passes"] else link.passing.clear)()
        _write(self._path.with_suffix(".seen"), str(table["version"]))

    def count(self) -> None:
        """Write the traffic so far: site -> [up, down], in bytes."""
        counts = {site: [link.up.passed, link.down.passed] for site, link in self.links.items()}
        _write(self._path.with_suffix(".counts"), json.dumps(counts))

    async def serve(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.load)
        for pair in json.loads(self._path.read_text())["pairs"]:
            await self._listen(**pair)
        self.load()  # last: when the version is written, every port is open
        before: list[int] = []
        while self._path.exists():
            now = [way.passed for link in self.links.values() for way in (link.up, link.down)]
            if now != before:
                self.count()
                before = now
            await asyncio.sleep(_POLL_S)

    async def _listen(self, site: str, to: str, listen: list[Any], target: list[Any]) -> None:
        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await self._pass(site, to)
                far_reader, far_writer = await asyncio.open_connection(*target)
                ways = (
                    self.carry(reader, writer, far_writer, site, to),
                    self.carry(far_reader, far_writer, writer, to, site),
                )
                await asyncio.gather(*ways)
                far_writer.close()
            writer.close()

        await asyncio.start_server(join, *listen)

    async def _pass(self, site: str, to: str) -> None:
        """Wait until both links are up."""
        while not (self.links[site].passing.is_set() and self.links[to].passing.is_set()):
            await self.links[site].passing.wait()
            await self.links[to].passing.wait()

    async def carry(
        self,
        reader: asyncio.StreamReader,
        source: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
        site: str,
        to: str,
    ) -> None:
        """Forward one direction of a connection until it ends; `source` writes to the reader's
        peer."""
        near, far = self.links[site], self.links[to]
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_HELD)
        delivery = asyncio.create_task(self._deliver(queue, source, writer, site, to))
        try:
            while data := await reader.read(min(near.up.chunk, far.down.chunk)):
                await self._pass(site, to)
                now = self._now()
                sent = near.up.take(len(data), now)
                due = far.down.take(len(data), sent)
                await queue.put((due + near.latency_s + far.latency_s, data))
                await self._sleep(max(0.0, due - now - _QUEUE_S))
        except OSError:
            writer.transport.abort()  # a reset is forwarded at once
        await queue.put((0.0, b""))
        await delivery

    async def _deliver(
        self,
        queue: asyncio.Queue[tuple[float, bytes]],
        source: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
        site: str,
        to: str,
    ) -> None:
        try:
            while True:
                due, data = await queue.get()
                if not data:
                    break
                await self._sleep(max(0.0, due - self._now()))
                await self._pass(site, to)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            source.transport.abort()
            while (await queue.get())[1]:
                continue


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def main(table: str) -> None:
    asyncio.run(Relay(Path(table)).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
