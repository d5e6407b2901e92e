"""The second best WAN, without root: a relay through which engines reach other sites' brokers.

Each pair of sites has a port of its own; what passes there takes its time at the uplink of the one
and at the downlink of the other, and is held for the latency of both. TCP ends here, so rates are
of its payload; a link that is down passes nothing and breaks no connection. What does not go by
MQTT (an agent that carries state) does not pass here.

A program of its own (`python -m speck.fog.wan.relay`). Its table is read again upon SIGHUP, the
version is written to `<table>.seen` when it holds; bytes so far go to `<table>.counts`. It ends by
itself when the table is gone.
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
_CHUNK_S = 0.02  # of a slow link at once
_QUEUE_S = 0.3  # as a modem's: who sends more waits
_POLL_S = 0.2
_MOST_HELD = 1024  # pieces of one direction of a connection


@dataclass(slots=True)
class _Way:
    """One direction of an uplink; `free_at`: when what was taken so far has gone."""

    bytes_per_s: float | None = None
    free_at: float = 0.0
    passed: int = 0

    def take(self, size: int, now: float) -> float:
        """When `size` bytes that come now have passed."""
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
    """All links, by the table at `path`; tests bring a time of their own."""

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
        """Take over rates, latencies, and which links are down."""
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
        """Write down what has passed: site -> [up, down], in bytes."""
        counts = {site: [link.up.passed, link.down.passed] for site, link in self.links.items()}
        _write(self._path.with_suffix(".counts"), json.dumps(counts))

    async def serve(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.load)
        for pair in json.loads(self._path.read_text())["pairs"]:
            await self._listen(**pair)
        self.load()  # last: who waits for it finds every port open
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
        """One direction of a connection, until it ends; `source` is the way back to the reader."""
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
            writer.transport.abort()  # a reset passes at once
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
