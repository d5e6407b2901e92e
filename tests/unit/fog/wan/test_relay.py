"""When the relay lets bytes pass, in a time of its own."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from speck.fog.wan.relay import Relay

MBPS = 1e6 / 8  # bytes a second


class Time:
    """Stands still while any task has work, then advances to the next one that wakes up."""

    def __init__(self) -> None:
        self.at = 100.0
        self._asleep: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        waking = asyncio.get_running_loop().create_future()
        heapq.heappush(self._asleep, (self.at + seconds, next(self._numbers), waking))
        await waking

    async def pass_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it go by until `work` is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):  # enough for everybody to come to their next sleep
                await asyncio.sleep(0)
            if self._asleep:
                at, _, waking = heapq.heappop(self._asleep)
                self.at = max(self.at, at)
                waking.set_result(None)
        await task


class Writer:
    """Notes when bytes came."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.arrivals: list[tuple[float, int]] = []

    def write(self, data: bytes) -> None:
        self.arrivals.append((self._time.now() - 100.0, len(data)))

    async def drain(self) -> None:
        """At once."""

    def can_write_eof(self) -> bool:
        return False


class Trial:
    """A relay between `a`, whose uplink is set, and `b`, without limits."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / "table.json"
        self.time = Time()
        self.relay = Relay(self.table, self.time.now, self.time.sleep)

    def shape(self, **uplink: float) -> None:
        """Mbit/s and ms."""
        free = {"up_mbps": None, "down_mbps": None, "latency_ms": 0, "passes": True}
        links = {"a": {**free, **uplink}, "b": free}
        self.table.write_text(json.dumps({"version": 1, "links": links}))
        self.relay.load()

    def send(self, size: int, site: str = "a", to: str = "b") -> list[tuple[float, int]]:
        """(when, how many) came of so many bytes that were there at once."""

        async def run() -> list[tuple[float, int]]:
            reader = asyncio.StreamReader(limit=2 * size)
            reader.feed_data(bytes(size))
            reader.feed_eof()
            writer: Any = Writer(self.time)
            await self.time.pass_for(self.relay.carry(reader, writer, writer, site, to))
            return list(writer.arrivals)

        return asyncio.run(run())


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


@pytest.mark.parametrize(("site", "to"), [("a", "b"), ("b", "a")])
def test_bytes_come_after_the_latency(trial: Trial, site: str, to: str) -> None:
    trial.shape(latency_ms=10)
    assert trial.send(8, site, to) == [(pytest.approx(0.010), 8)]


@pytest.mark.parametrize(
    ("site", "to", "rate_mbps"), [("a", "b", 1.0), ("b", "a", 2.0)], ids=["up", "down"]
)
def test_a_transfer_goes_at_the_rate_that_was_set(
    trial: Trial, site: str, to: str, rate_mbps: float
) -> None:
    trial.shape(up_mbps=1, down_mbps=2, latency_ms=10)
    came = trial.send(250_000, site, to)
    assert sum(size for _, size in came) == 250_000
    passed = 0
    for at, size in came:
        passed += size
        assert at == pytest.approx(passed / (rate_mbps * MBPS) + 0.010)


def test_two_transfers_share_an_uplink(trial: Trial) -> None:
    trial.shape(up_mbps=1)

    async def run() -> float:
        async def one() -> None:
            reader = asyncio.StreamReader()
            reader.feed_data(bytes(50_000))
            reader.feed_eof()
            writer: Any = Writer(trial.time)
            await trial.relay.carry(reader, writer, writer, "a", "b")

        async def both() -> None:
            await asyncio.gather(one(), one())

        await trial.time.pass_for(both())
        return trial.time.now() - 100.0

    assert asyncio.run(run()) == pytest.approx(100_000 / MBPS)


def test_rates_change_while_it_runs(trial: Trial) -> None:
    trial.shape(latency_ms=10)
    trial.send(1)
    trial.time.at = 100.0
    trial.shape(latency_ms=60)
    assert trial.send(1) == [(pytest.approx(0.060), 1)]


def test_who_sends_faster_than_the_link_waits(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more is taken in than passes in 0.3 s, and the piece that is read then."""
    trial.shape(up_mbps=1)
    way = type(trial.relay.links["a"].up)
    arrivals: list[tuple[float, int]] = []

    def take(self: Any, size: int, now: float) -> float:
        arrivals.append((now - 100.0, size))
        return real(self, size, now)

    real = way.take
    monkeypatch.setattr(way, "take", take)
    trial.send(250_000)
    up = arrivals[::2]  # each piece is taken by the one's uplink, then by the other's downlink
    sizes = itertools.accumulate(size for _, size in up)
    ahead = [size - at * MBPS for size, (at, _) in zip(sizes, up, strict=True)]
    assert max(ahead) == pytest.approx(0.3 * MBPS + up[0][1])
