"""What a reader takes before another one follows it, and where that is weaker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.job import Delivery
from tests.unit.deploy.planner.plans import deployed, plan_jobs, sink_of
from tests.unit.deploy.planner.readers import (
    B2,
    FEED,
    FOREIGN,
    NEW,
    OLD,
    A,
    B,
    C,
    find_drain,
    find_line,
    plan_jobs_beside,
    reader,
)


def test_a_followed_drain_waits_for_those_that_go_on_and_number() -> None:
    drain = find_drain(plan_jobs(deployed(FEED, OLD), FEED, NEW))
    assert drain.followed and not drain.fed_outside
    assert (drain.sinks, drain.going_on) == ((), (sink_of(FEED),))


def test_a_drain_that_nobody_follows_is_none_of_that() -> None:
    plan = plan_jobs(
        deployed(FEED, OLD, reader("other", "cloud/y")), FEED, reader("other", "cloud/y")
    )
    drain = find_drain(plan)
    assert not drain.followed and not drain.fed_outside
    assert drain.going_on == (sink_of(FEED),)


@pytest.mark.parametrize("how", ["inputs", "foreign producer", "nobody known"])
def test_a_followed_drain_knows_that_some_feed_its_link_without_telling_numbers(how: str) -> None:
    foreign = replace(FEED, args=FOREIGN["args"])
    there = {"inputs": (FEED,), "foreign producer": (foreign,), "nobody known": ()}[how]
    inputs = (OLD.source,) if how == "inputs" else ()
    plan = plan_jobs_beside(*there, NEW, inventory=deployed(*there, OLD), inputs=inputs)
    assert find_drain(plan).followed
    assert find_drain(plan).fed_outside


@pytest.mark.parametrize("delivery", Delivery)
def test_a_drain_knows_that_all_producers_of_its_link_promise_nothing(delivery: Delivery) -> None:
    feed = replace(FEED, delivery=delivery)
    plan = plan_jobs(deployed(feed, OLD), feed, NEW)
    assert find_drain(plan).lossy == (delivery is Delivery.AT_MOST_ONCE)


def test_a_followed_drain_waits_for_sinks_of_other_compositions() -> None:
    sinks = {OLD.source: ("speck-01234567-theirs-0-out",)}
    plan = plan_jobs_beside(NEW, inventory=deployed(OLD), outside_sinks=sinks)
    assert find_drain(plan).going_on == sinks[OLD.source]
    assert not find_drain(plan).fed_outside


def test_without_a_drain_the_handover_says_what_is_abandoned() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2, drop_queues=True, drain_limit_s=0)
    assert find_line(plan, "handover edge-a/T from B to C").endswith(
        ": goes on where B ended; what it had not taken when it stopped is abandoned (no drain)"
    )
    assert "drain edge-a/T for B" not in str(plan)


def test_with_consent_to_drop_queues_a_reader_that_is_followed_is_drained_for_a_while() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2, drop_queues=True, drain_limit_s=9)
    assert find_line(plan, "drain edge-a/T for B").endswith(
        ": what was sent so far; what it has not taken in 9 s is dropped"
    )
    assert plan.queues == ()


@pytest.mark.parametrize("how", ["inputs", "other composition", "nobody known", "all is numbered"])
def test_where_some_feed_the_link_unseen_the_handover_promises_at_least_once(how: str) -> None:
    there = () if how == "nobody known" else (FEED,)
    plan = plan_jobs_beside(
        *there,
        NEW,
        inventory=deployed(*there, OLD),
        inputs=(OLD.source,) if how == "inputs" else (),
        outside_sinks={OLD.source: ("theirs-out",)} if how == "other composition" else None,
    )
    unseen = "; at least once where a publisher does not number its messages"
    promise = "" if how == "all is numbered" else unseen
    line = find_line(plan, "handover edge-a/T from old to new")
    assert line.endswith(f": goes on where old ended{promise}")
