"""Calls that operations share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.deploy.operations.gathering import Gathering
from speck.errors import UnreachableError
from tests.waiting import wait_for

LIMIT_S = 60.0


class Calls:
    """Records calls, each of which lasts until it is let go."""

    def __init__(self) -> None:
        self.begun: list[frozenset[str]] = []
        self.error: Exception | None = None
        self._may_end = threading.Semaphore(0)

    def make(self, site: str, items: frozenset[str]) -> int:
        self.begun.append(items)
        number = len(self.begun)
        assert self._may_end.acquire(timeout=LIMIT_S)
        if self.error is not None:
            raise self.error
        return number

    def let_end(self) -> None:
        self._may_end.release()


def test_all_that_ask_during_a_call_share_the_next_one_with_the_items_of_all() -> None:
    calls = Calls()
    gathering = Gathering(calls.make)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(gathering.ask, "edge-a", ["first"])
        wait_for(lambda: len(calls.begun) == 1)
        others = [pool.submit(gathering.ask, "edge-a", [name]) for name in "abc"]
        wait_for(lambda: gathering.pending("edge-a") == frozenset("abc"))
        calls.let_end()
        calls.let_end()
        assert first.result(LIMIT_S) == 1
        assert [each.result(LIMIT_S) for each in others] == [2, 2, 2]
    assert calls.begun == [frozenset({"first"}), frozenset("abc")]


def test_sites_are_called_side_by_side() -> None:
    both = threading.Barrier(2)
    gathering: Gathering[str, int] = Gathering(lambda site, items: both.wait(LIMIT_S))
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(gathering.ask, site, "x") for site in ("edge-a", "edge-b")]
        assert {each.result(LIMIT_S) for each in answers} == {0, 1}


def test_a_call_that_fails_fails_for_all_and_the_next_one_is_new() -> None:
    calls = Calls()
    calls.error = UnreachableError("cannot reach the broker")
    gathering = Gathering(calls.make)
    calls.let_end()
    with pytest.raises(UnreachableError):
        gathering.ask("edge-a", "x")
    calls.error = None
    calls.let_end()
    assert gathering.ask("edge-a", "x") == 2
