"""Fresh reads of engines and brokers together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from speck.binding import BrokerPoll, EnginePoll
from speck.clock import SystemClock
from speck.errors import UnreachableError
from speck.sites.poll_cache import FRESH_S
from speck.sites.poll_scheduler import PATIENCE_S, PollScheduler
from speck.sites.site_polls import SitePolls
from tests.waiting import LIMIT_S, wait_for


class Time(SystemClock):
    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


class FakeSites:
    """Engines and brokers that answer at once, but for those that hang."""

    apart = False

    def __init__(self) -> None:
        self.time = Time()
        self.counts: Counter[str] = Counter()
        self.hanging: dict[str, threading.Event] = {}
        self.mute = False
        self._lock = threading.Lock()
        self.scheduler = PollScheduler(self.time, at_once=lambda: 96)
        polling: Any = self
        self.polls = SitePolls(polling, self.scheduler, self.time, lambda: float("-inf"))

    def engine(self, site: str, what: EnginePoll) -> str:
        return self._answer("engine")

    def broker(self, site: str, what: BrokerPoll) -> str:
        if self.mute and what is BrokerPoll.VIEW:
            self._answer(str(what))
            raise UnreachableError("cannot read: no answer")
        return self._answer(str(what))

    def _answer(self, what: str) -> str:
        with self._lock:
            self.counts[what] += 1
        if what in self.hanging:
            assert self.hanging[what].wait(LIMIT_S)
        return what

    def hang(self, what: str) -> threading.Event:
        self.hanging[what] = threading.Event()
        return self.hanging[what]


@pytest.fixture
def sites() -> Iterator[FakeSites]:
    sites = FakeSites()
    yield sites
    for hanging in sites.hanging.values():
        hanging.set()
    sites.polls.close()
    sites.scheduler.close()


def test_a_fresh_read_asks_the_engine_and_the_broker_once(sites: FakeSites) -> None:
    go_on = sites.hang("engine")  # for longer than the broker takes
    read = threading.Thread(target=sites.polls.refresh_all, args=({"a"},))
    read.start()
    wait_for(lambda: sites.counts["reach"] == 1)
    go_on.set()
    read.join(LIMIT_S)
    assert sites.counts == {"engine": 1, "reach": 1}


def test_a_fresh_read_tries_the_numbers_of_a_mute_broker_once(sites: FakeSites) -> None:
    sites.mute = True
    sites.polls.broker_numbers.poll({"a"})
    sites.time.at += FRESH_S / 10
    sites.polls.refresh_all({"a"})
    assert sites.counts == {"engine": 1, "view": 2}


def test_a_fresh_read_waits_once_for_an_engine_and_a_broker_that_hang(sites: FakeSites) -> None:
    sites.hang("engine")
    sites.hang("reach")
    read = threading.Thread(target=sites.polls.refresh_all, args=({"a"},))
    read.start()
    wait_for(lambda: sites.counts == {"engine": 1, "reach": 1})
    sites.time.at += PATIENCE_S
    read.join(LIMIT_S)
    assert not read.is_alive()


def test_many_fresh_reads_cost_a_site_one_poll_a_second(sites: FakeSites) -> None:
    for second in range(1, 4):
        readers = [
            threading.Thread(target=sites.polls.refresh_all, args=({"a"},)) for _ in range(10)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            while reader.is_alive():
                sites.time.at += FRESH_S / 100
                reader.join(0.001)
        most = (sites.time.at - 100.0) / FRESH_S + 1
        assert max(sites.counts.values()) <= most, second
