"""Views of brokers that operations share."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest

from speck.deploy.operations.shared_views import SharedViews
from speck.errors import UnreachableError
from speck.model.observation import BrokerView
from tests.waiting import wait_for

LIMIT_S = 60.0
EDGE = "edge-a"


class Broker:
    """Records views, each of which lasts until it is let go; its uptime is the view's number."""

    def __init__(self) -> None:
        self.views: list[set[str] | None] = []
        self.error: Exception | None = None
        self._may_end = threading.Semaphore(0)

    def view(self, site: str, client_ids: Collection[str] | None) -> BrokerView:
        self.views.append(None if client_ids is None else set(client_ids))
        number = len(self.views)
        assert self._may_end.acquire(timeout=LIMIT_S)
        if self.error is not None:
            raise self.error
        return BrokerView({}, {}, uptime_s=number)

    def let_end(self) -> None:
        self._may_end.release()


def look(broker: Broker, views: SharedViews, *client_ids: str) -> float | None:
    broker.let_end()
    return views.view_after_end(EDGE, client_ids).uptime_s


def test_a_view_reads_the_clients_that_are_asked_for() -> None:
    broker = Broker()
    views = SharedViews(broker.view)
    broker.let_end()
    views.view(EDGE, ("a", "b"))
    broker.let_end()
    views.view(EDGE)
    assert broker.views == [{"a", "b"}, None]


def test_all_that_ask_during_a_view_share_the_next_one() -> None:
    broker = Broker()
    views = SharedViews(broker.view)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(views.view, EDGE, ("a",))
        wait_for(lambda: len(broker.views) == 1)
        others = [pool.submit(views.view, EDGE, (name,)) for name in ("b", "c")]
        wait_for(lambda: views._gathering.pending(EDGE) == {"b", "c"})
        broker.let_end()
        broker.let_end()
        assert first.result(LIMIT_S).uptime_s == 1
        assert [each.result(LIMIT_S).uptime_s for each in others] == [2, 2]
    assert broker.views == [{"a"}, {"b", "c"}]


def test_a_view_that_fails_fails_for_all_and_the_next_one_is_new() -> None:
    broker = Broker()
    broker.error = UnreachableError("cannot reach the broker")
    views = SharedViews(broker.view)
    views.record_end(EDGE, "a")
    with pytest.raises(UnreachableError):
        look(broker, views, "a")
    broker.error = None
    assert look(broker, views, "a") == 2


def test_of_clients_that_have_ended_the_newest_view_is_enough() -> None:
    broker = Broker()
    views = SharedViews(broker.view)
    assert look(broker, views, "a", "a-out") == 1  # they have not ended
    views.record_end(EDGE, "a")
    views.record_end(EDGE, "a-out")
    assert look(broker, views, "a", "a-out") == 2  # that view began before their end
    assert look(broker, views, "a", "a-out") == 2
    assert look(broker, views, "a", "b-out") == 3
    views.record_start(EDGE, "a-out")
    assert look(broker, views, "a", "a-out") == 4
    assert look(broker, views) == 5


def test_a_view_reads_what_has_ended_too_since_it_will_be_asked_for() -> None:
    broker = Broker()
    views = SharedViews(broker.view)
    for client_id in ("a", "b", "c"):
        views.record_end(EDGE, client_id)
    views.record_end("elsewhere", "d")
    assert look(broker, views, "a") == 1
    assert look(broker, views, "b", "c") == 1
    assert look(broker, views, "d") == 2
    assert broker.views == [{"a", "b", "c"}, {"d"}]


def test_who_asks_while_a_view_is_under_way_takes_part_if_all_had_ended_before() -> None:
    broker = Broker()
    views = SharedViews(broker.view)
    views.record_end(EDGE, "a")
    views.record_end(EDGE, "b")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(views.view_after_end, EDGE, ("a",))
        wait_for(lambda: len(broker.views) == 1)
        second = pool.submit(views.view_after_end, EDGE, ("b",))
        broker.let_end()
        assert (first.result(LIMIT_S).uptime_s, second.result(LIMIT_S).uptime_s) == (1, 1)
