"""When polls begin: at once, or in turns, a limited number at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from speck.clock import SystemClock
from speck.errors import TransientError
from speck.sites.poll_scheduler import PATIENCE_S, PollScheduler, Turn
from tests.waiting import LIMIT_S, wait_for


class Time(SystemClock):
    """Stands still unless a test advances it."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


class Polls:
    """Polls that go on until they are let go, by the name of their site."""

    def __init__(self) -> None:
        self.time = Time()
        self.at_once = 2
        self.scheduler = PollScheduler(self.time, at_once=lambda: self.at_once)
        self.begun: list[str] = []
        self.silent: set[str] = set()
        self._lock = threading.Lock()
        self._ends: dict[str, threading.Event] = {}

    def turn(self, site: str, kind: str = "engine", not_before: float = 0.0) -> Turn:
        self._ends[site] = threading.Event()
        return Turn((kind, site), self.run(site), not_before)

    def run(self, site: str) -> Callable[[], bool]:
        def run() -> bool:
            with self._lock:
                self.begun.append(site)
            assert self._ends.setdefault(site, threading.Event()).wait(LIMIT_S)
            return site not in self.silent

        return run

    def end(self, *sites: str) -> None:
        for site in sites:
            self._ends.setdefault(site, threading.Event()).set()

    def wait_for(self, *sites: str) -> None:
        wait_for(lambda: sorted(self.begun) == sorted(sites), lambda: self.begun)

    def close(self) -> None:
        self.scheduler.close()
        self.end(*self._ends)


@pytest.fixture
def polls() -> Iterator[Polls]:
    polls = Polls()
    yield polls
    polls.close()


def test_turns_come_in_their_order_and_a_few_at_a_time(polls: Polls) -> None:
    polls.scheduler.queue(polls.turn(site) for site in "abcd")
    polls.wait_for("a", "b")
    polls.end("a")
    polls.wait_for("a", "b", "c")
    polls.end("b", "c", "d")
    polls.wait_for("a", "b", "c", "d")


def test_two_callers_get_their_turns_alternately(polls: Polls) -> None:
    polls.at_once = 0
    polls.scheduler.queue(polls.turn(site) for site in ("a1", "a2", "a3"))
    polls.scheduler.queue(polls.turn(site) for site in ("b1", "b2", "b3"))
    polls.end("a1", "a2", "a3", "b1", "b2", "b3")
    polls.at_once = 1
    wait_for(lambda: len(polls.begun) == 6)
    assert polls.begun == ["a1", "b1", "a2", "b2", "a3", "b3"]


def test_who_waits_for_a_poll_needs_no_turn(polls: Polls) -> None:
    polls.scheduler.queue(polls.turn(site) for site in "abc")
    polls.wait_for("a", "b")
    polls.scheduler.begin(("engine", "urgent"), polls.run("urgent"))
    polls.wait_for("a", "b", "urgent")


def test_slow_polls_give_their_turns_to_others(polls: Polls) -> None:
    polls.scheduler.queue(polls.turn(site) for site in "abcd")
    polls.wait_for("a", "b")
    polls.time.at += PATIENCE_S
    polls.wait_for("a", "b", "c", "d")


def test_sites_that_did_not_answer_last_time_take_nobodys_turn(polls: Polls) -> None:
    polls.silent = {"a", "b"}
    polls.scheduler.queue(polls.turn(site) for site in "ab")
    polls.wait_for("a", "b")
    polls.end("a", "b")
    wait_for(lambda: len(polls.scheduler._silent) == 2)
    polls.begun.clear()
    polls.scheduler.queue(polls.turn(site) for site in "abcde")
    polls.wait_for("a", "b", "c", "d")


def test_what_does_not_get_its_turn_is_withdrawn(polls: Polls) -> None:
    turns = [polls.turn(site) for site in "abcd"]
    polls.scheduler.queue(turns)
    polls.scheduler.await_begun(turns, polls.time.at, lambda: False)
    assert polls.scheduler.withdraw(turns) == 2
    polls.end("a", "b")
    polls.scheduler.queue([polls.turn("e")])
    polls.wait_for("a", "b", "e")


def test_nobody_waits_for_turns_who_has_given_up(polls: Polls) -> None:
    polls.at_once = 0
    turns = [polls.turn("a")]
    polls.scheduler.queue(turns)
    polls.scheduler.await_begun(turns, polls.time.at + LIMIT_S, lambda: True)
    assert polls.scheduler.withdraw(turns) == 1


def test_a_turn_comes_no_sooner_than_it_is_due(polls: Polls) -> None:
    polls.scheduler.queue([polls.turn("a"), polls.turn("late", not_before=polls.time.at + 3)])
    polls.scheduler.queue([polls.turn("b")])
    polls.wait_for("a", "b")
    polls.end("a", "b")
    polls.time.at += 3
    polls.wait_for("a", "b", "late")


def test_who_has_nothing_to_poll_disturbs_nobody(polls: Polls) -> None:
    polls.at_once = 0
    polls.scheduler.queue([polls.turn("a")])
    polls.scheduler.queue([])
    polls.at_once = 1
    polls.wait_for("a")


def test_nothing_begins_once_it_is_closed(polls: Polls) -> None:
    polls.scheduler.close()
    with pytest.raises(TransientError, match="the service is stopping"):
        polls.scheduler.begin(("engine", "a"), polls.run("a"))
    assert polls.begun == []


def test_polls_that_callers_wait_for_hold_up_no_turns(polls: Polls) -> None:
    """However many of them go on at once."""
    for caller in ("u1", "u2", "u3"):
        polls.scheduler.begin(("engine", caller), polls.run(caller))
    polls.scheduler.queue([polls.turn(site) for site in ("a", "b", "c")])
    polls.wait_for("u1", "u2", "u3", "a", "b")


def test_a_poll_that_a_caller_waits_for_begins_when_it_is_due_though_there_is_no_room(
    polls: Polls,
) -> None:
    polls.at_once = 0
    polls.scheduler.queue([polls.turn("a")])
    due = polls.time.at + 3
    polls.scheduler.begin(("engine", "late"), polls.run("late"), due)
    polls.scheduler.begin(("engine", "now"), polls.run("now"))
    polls.wait_for("now")
    polls.time.at = due
    polls.wait_for("now", "late")
