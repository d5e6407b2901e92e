"""Polls of sites: repeated when they are old, once for all callers; waited for briefly."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from speck.clock import SystemClock
from speck.errors import TransientError, UnreachableError
from speck.monitor.watch import pause_s
from speck.sites.poll_cache import FRESH_S, PollCache, fresh_for
from speck.sites.poll_scheduler import PATIENCE_S, PollScheduler
from tests.waiting import LIMIT_S, wait_for


class Time(SystemClock):
    """Stands still unless a test advances it."""

    def __init__(self) -> None:
        self.at = 100.0
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.at

    def advance(self, seconds: float) -> float:
        """Called by any thread: without the lock one that was held up would set it back."""
        with self._lock:
            self.at += seconds
            return self.at


class Sites:
    """Answers with the number of the look at that site; `during` is called in each look."""

    def __init__(self) -> None:
        self.time = Time()
        self.polls: Counter[str] = Counter()
        self.touched = float("-inf")
        self.during: Callable[[str], None] = lambda _site: None
        self._lock = threading.Lock()
        self.at_once = 96
        self.scheduler = PollScheduler(self.time, at_once=lambda: self.at_once)
        self.looks: PollCache[int] = PollCache(
            self._take, self.time, lambda: self.touched, "test", self.scheduler
        )

    def _take(self, site: str) -> int:
        self.during(site)
        with self._lock:
            self.polls[site] += 1
            return self.polls[site]


@pytest.fixture
def sites() -> Iterator[Sites]:
    sites = Sites()
    yield sites
    sites.looks.close()
    sites.scheduler.close()


def test_a_look_is_good_for_a_while(sites: Sites) -> None:
    sites.looks.poll(["a"])
    sites.time.at += FRESH_S / 2
    assert sites.looks.poll(["a"])["a"].answer == 1
    sites.time.at += FRESH_S
    assert sites.looks.poll(["a"])["a"].answer == 2


def test_who_takes_older_ones_has_none_taken(sites: Sites) -> None:
    sites.looks.poll(["a"])
    sites.time.at += 10.0
    assert sites.looks.poll(["a"], 11.0)["a"].answer == 1
    sites.looks.ask(["a"], 11.0)
    assert sites.polls == {"a": 1}


def test_what_changed_since_is_looked_at_however_old_looks_may_be(sites: Sites) -> None:
    sites.looks.poll(["a"])
    sites.touched = sites.time.at
    sites.time.at += 0.1
    assert sites.looks.poll(["a"], 60.0)["a"].answer == 2


def test_many_sites_are_looked_at_once_though_the_first_are_old_when_the_last_are_taken(
    sites: Sites,
) -> None:
    names = [f"s{n}" for n in range(100)]

    def slow(_site: str) -> None:
        sites.time.advance(FRESH_S / 10)

    sites.during = slow
    sites.looks.poll(names)
    assert max(sites.polls.values()) == 1


def test_a_site_that_is_slow_is_not_waited_for(sites: Sites) -> None:
    sites.looks.poll(["a", "slow"])
    sites.time.at += FRESH_S + 0.1
    there, go_on = threading.Event(), threading.Event()

    def hang(site: str) -> None:
        if site == "slow":
            there.set()
            go_on.wait(20)

    sites.during = hang
    sites.looks.ask(["slow"])
    assert there.wait(20)
    sites.time.at += PATIENCE_S
    views = sites.looks.poll(["a", "slow"])
    go_on.set()
    assert {site: look.answer for site, look in views.items()} == {"a": 2, "slow": 1}


def test_many_are_looked_at_more_rarely() -> None:
    assert fresh_for(1) == fresh_for(32) == FRESH_S
    assert fresh_for(320) == 10 * FRESH_S


def test_who_wants_one_site_does_not_wait_for_looks_at_many(sites: Sites) -> None:
    there, go_on = threading.Semaphore(0), threading.Event()

    def hang(site: str) -> None:
        if site != "one":
            there.release()
            go_on.wait(20)

    sites.during = hang
    names = [f"s{n}" for n in range(500)]
    many = threading.Thread(target=sites.looks.poll, args=(names, FRESH_S, 60.0))
    many.start()
    assert all(there.acquire(timeout=20) for _ in range(16))
    assert sites.looks.poll(["one"])["one"].answer == 1
    assert sites.polls == {"one": 1}
    go_on.set()
    many.join(20)
    assert len(sites.polls) == 501


def test_no_more_looks_go_on_than_may_at_once_but_for_those_at_silent_sites(sites: Sites) -> None:
    """Which hold a thread until their time limit, and no turn of others."""
    names = [f"s{n}" for n in range(12)]
    silent = {f"s{n}" for n in range(4)}
    now, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2, timeout=20)
    over, let_go = threading.Event(), list[bool]()

    def during(site: str) -> None:
        nonlocal now, most
        if site in silent:
            if sites.time.at > 100.0:
                let_go.append(over.wait(20))
            raise UnreachableError("no answer")
        with lock:
            now += 1
            most = max(most, now)
        if sites.time.at > 100.0:
            both.wait()
        with lock:
            now -= 1

    sites.during = during
    sites.looks.poll(names)
    sites.time.at, most = sites.time.at + 10 * FRESH_S, 0
    sites.at_once = 2
    views = sites.looks.poll(set(names) - silent, urgent=False)
    assert most == 2
    sites.time.at += 10 * FRESH_S
    starts = sites.time.at
    many = threading.Thread(target=sites.looks.poll, args=(names,), kwargs={"urgent": False})
    many.start()
    while any(sites.looks.poll([n], 1000.0)[n].begun < starts for n in views):
        assert many.is_alive()
    over.set()
    many.join(20)
    assert (most, all(let_go)) == (2, True)


def test_who_does_not_wait_for_all_comes_to_all_of_them_in_the_end(sites: Sites) -> None:
    names = [f"s{n}" for n in range(300)]
    until, go_on = sites.time.at + PATIENCE_S, threading.Event()

    def slow(_site: str) -> None:
        if sites.time.advance(0.01) >= until:
            assert go_on.wait(20)

    sites.during = slow
    views = sites.looks.poll(names, 60.0)
    assert len(views) < 300
    go_on.set()
    wait_for(lambda: sites.looks.poll(names, 60.0).keys() == set(names))
    assert max(sites.polls.values()) == 1


def test_fresh_polls_of_a_site_begin_a_second_apart_and_all_callers_share_them(
    sites: Sites,
) -> None:
    assert sites.looks.poll(["a"], anew=True)["a"].answer == 1
    sites.time.at += FRESH_S / 10
    answers: list[int | None] = []

    def read() -> None:
        answers.append(sites.looks.poll(["a"], anew=True)["a"].answer)

    callers = [threading.Thread(target=read) for _ in range(5)]
    for caller in callers:
        caller.start()
    wait_for(lambda: sites.scheduler.later == 1)
    assert sites.looks.poll(["b"], anew=True)["b"].answer == 1, "another site is not held up"
    assert sites.polls == {"a": 1, "b": 1}
    sites.time.at += FRESH_S
    for caller in callers:
        caller.join(LIMIT_S)
    assert answers == [2] * 5
    assert sites.polls["a"] == 2


def test_a_fresh_poll_need_not_wait_since_the_watch_has_polled(sites: Sites) -> None:
    sites.looks.poll(["a"], urgent=False)
    sites.time.at += FRESH_S / 10
    assert sites.looks.poll(["a"], anew=True)["a"].answer == 2


def test_the_watch_takes_the_fresh_poll_that_a_caller_waits_for(sites: Sites) -> None:
    sites.looks.poll(["a"], anew=True)
    sites.time.at += FRESH_S / 10
    caller = threading.Thread(target=sites.looks.poll, args=(["a"],), kwargs={"anew": True})
    caller.start()
    wait_for(lambda: sites.scheduler.later == 1)
    sites.time.at += FRESH_S
    assert sites.looks.poll(["a"], FRESH_S / 2, urgent=False)["a"].answer == 2
    caller.join(LIMIT_S)
    assert sites.polls == {"a": 2}


def test_what_somebody_else_saw_is_told_while_it_is_fresh_and_was_an_answer(sites: Sites) -> None:
    def refuse(site: str) -> None:
        if site == "silent":
            raise TransientError("no answer")

    sites.during = refuse
    sites.looks.poll(["a", "silent"])
    assert sites.looks.find_fresh(["a", "silent", "b"], 5.0).keys() == {"a"}
    sites.time.at += 6.0
    assert sites.looks.find_fresh(["a"], 5.0) == {}
    assert sites.polls == {"a": 1}


def test_nobody_waits_for_looks_that_are_closed(sites: Sites) -> None:
    there, go_on = threading.Event(), threading.Event()

    def hang(_site: str) -> None:
        there.set()
        go_on.wait(20)

    sites.during = hang
    waits = threading.Thread(target=sites.looks.poll, args=(["a"], FRESH_S, 60.0))
    waits.start()
    assert there.wait(20)
    sites.looks.close()
    waits.join(20)
    assert not waits.is_alive()
    go_on.set()


def test_a_site_that_is_forgotten_while_it_is_awaited_is_not_looked_at_again(sites: Sites) -> None:
    def forget(site: str) -> None:
        sites.touched = sites.time.at
        sites.looks.forget(site)

    sites.during = forget
    assert sites.looks.poll(["a"]) == {}
    assert sites.polls == {"a": 1}
    sites.at_once = 1
    assert sites.looks.poll(["b", "c", "d"], urgent=False) == {}
    assert sites.polls == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_the_watch_looks_at_many_sites_for_half_of_the_time_at_most() -> None:
    assert pause_s(5.0, 0.2, None) == 5.0
    assert pause_s(5.0, 0.2, 1.0) == 1.0
    assert pause_s(5.0, 0.2, -3.0) == 0.1
    assert pause_s(5.0, 1.5, None, apart=True) == 3.5
    assert pause_s(5.0, 20.0, None, apart=True) == 2.0
    assert pause_s(5.0, 1.5, 1.0, apart=True) == 1.0
    assert pause_s(5.0, 2.9, -3.0) == 0.1  # a few did not answer
    assert pause_s(5.0, 9.0, -3.0) == 6.0


def test_of_a_site_there_is_one_poll_at_a_time_whoever_asks(sites: Sites) -> None:
    names = [f"s{n}" for n in range(40)]
    going_on: Counter[str] = Counter()
    lock, most = threading.Lock(), 0

    def during(site: str) -> None:
        nonlocal most
        with lock:
            going_on[site] += 1
            most = max(most, going_on[site])
        os.sched_yield()
        with lock:
            going_on[site] -= 1

    sites.during, sites.at_once = during, 4
    callers = [
        threading.Thread(target=sites.looks.poll, args=(some, FRESH_S, 60.0), kwargs=options)
        for some in (names, names[:20], names[:3])
        for options in ({"urgent": False}, {"anew": True}, {})
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert not any(caller.is_alive() for caller in callers)
    assert (most, sites.polls.keys()) == (1, set(names))
