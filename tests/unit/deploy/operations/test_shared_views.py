"""Views of brokers that operations share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.deploy.operations.shared_views import SharedViews
from speck.errors import UnreachableError
from speck.model.observation import BrokerView
from tests.waiting import wait_for

LIMIT_S = 60.0


class Broker:
    """Counts views, each of which lasts until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.error: Exception | None = None
        self._may_end = threading.Semaphore(0)

    def view(self, site: str) -> BrokerView:
        self.begun += 1
        number = self.begun
        assert self._may_end.acquire(timeout=LIMIT_S)
        if self.error is not None:
            raise self.error
        return BrokerView({}, {}, uptime_s=number)

    def let_end(self) -> None:
        self._may_end.release()


def test_all_that_ask_during_a_view_share_the_next_one() -> None:
    broker, asked = Broker(), threading.Semaphore(0)
    views = SharedViews(broker.view)

    def ask() -> float | None:
        asked.release()
        return views.view("edge-a").uptime_s

    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(ask)
        wait_for(lambda: broker.begun == 1)
        others = [pool.submit(ask) for _ in range(5)]
        assert all(asked.acquire(timeout=LIMIT_S) for _ in range(6))
        wait_for(lambda: "edge-a" in views._next)
        broker.let_end()
        assert first.result(LIMIT_S) == 1
        for _ in range(5):  # one that asks late may need a view of its own
            broker.let_end()
        numbers = {each.result(LIMIT_S) for each in others}
    assert 1 not in numbers
    assert len(numbers) < 5


def test_brokers_are_viewed_side_by_side() -> None:
    both = threading.Barrier(2)

    def view(site: str) -> BrokerView:
        both.wait(LIMIT_S)
        return BrokerView({}, {})

    views = SharedViews(view)
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(views.view, ("edge-a", "edge-b")))) == 2


def test_a_view_that_fails_fails_for_all_and_the_next_one_is_new() -> None:
    broker = Broker()
    broker.error = UnreachableError("cannot reach the broker")
    views = SharedViews(broker.view)
    broker.let_end()
    with pytest.raises(UnreachableError):
        views.view("edge-a")
    broker.error = None
    broker.let_end()
    assert views.view("edge-a").uptime_s == 2


def test_of_clients_that_have_ended_the_newest_view_is_enough() -> None:
    broker = Broker()
    views = SharedViews(broker.view)

    def look(*client_ids: str) -> float | None:
        broker.let_end()
        return views.view_after_end("edge-a", client_ids).uptime_s

    assert look("a", "a-out") == 1  # they have not ended
    views.note_end("a", "a-out")
    assert look("a", "a-out") == 2  # that view began before their end
    assert look("a", "a-out") == 2
    assert look("a", "b-out") == 3
    views.note_start("a-out")
    assert look("a", "a-out") == 4
    assert look() == 5
