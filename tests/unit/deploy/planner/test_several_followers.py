"""Several readers that follow one, and readers that are being stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speck.model.incarnation import Inventory
from speck.model.link_operations import HandOver
from speck.model.observation import Observation
from tests.unit.deploy.planner.plans import deployed, plan_jobs, running, text
from tests.unit.deploy.planner.readers import (
    FEED,
    NEW,
    OLD,
    OTHER,
    TAKEN,
    ask_to_stop,
    client_id,
    end_jobs,
    list_handovers,
    reader,
    session,
    with_sessions,
)


def split(**new: Any) -> Inventory:
    """Two readers took the place of the old one; the other one runs."""
    return with_sessions(
        end_jobs(deployed(FEED, OLD, OTHER), "old"),
        session(OLD, followed_by=client_id(NEW), begun=True, job=OLD),
        session(NEW, former=client_id(OLD), skip=TAKEN, job=NEW, **new),
        session(OTHER, former=client_id(OLD), beside=True, begun=True, job=OTHER),
    )


def test_one_that_has_not_begun_reads_first_if_another_one_has_and_leaves() -> None:
    plan = plan_jobs(split(), FEED, OLD)
    assert plan.gate
    assert plan.queues == ()
    assert "start new on edge-a" in str(plan)
    assert "start old" not in str(plan)
    assert list_handovers(plan) == {}


def test_it_need_not_if_the_other_one_stays() -> None:
    plan = plan_jobs(split(), FEED, OLD, OTHER)
    assert not plan.gate
    assert list_handovers(plan) == {"old": "new"}


def test_it_need_not_if_nothing_writes_its_sink_link_any_more() -> None:
    assert not plan_jobs(split(), FEED, replace(OTHER, site="cloud")).gate


def test_the_old_reader_comes_back_for_all_of_them() -> None:
    inventory = split(begun=True)
    both = replace(inventory, jobs={**inventory.jobs, **deployed(NEW).jobs})
    plan = plan_jobs(both, FEED, OLD)
    (handover,) = (s.operation for s in plan.steps if isinstance(s.operation, HandOver))
    assert handover.others == (client_id(OTHER),)


def test_one_that_was_to_follow_beside_another_goes_on_where_the_reader_ended() -> None:
    """A change was cancelled when it had handed the link over to the first of two. They begin as
    they were to: one after the other, when both can."""
    inventory = with_sessions(
        end_jobs(deployed(FEED, OLD), "old"),
        session(OLD, followed_by=client_id(NEW), begun=True, job=OLD),
        session(NEW, former=client_id(OLD), skip=TAKEN, job=NEW),
        session(OTHER, follows=client_id(OLD), beside=True, whole=True, job=OTHER),
    )
    assert (
        text(plan_jobs(inventory, FEED, NEW, OTHER))
        == """
[] -> #1 handover edge-a/T from old to other: goes on where old ended
[] -> #2 upload aaaaaaaa to edge-a: needed there
[1,2] -> #3 start new on edge-a: new job
[1,2,3] -> #4 start other on edge-a: new job
[1,3,4] -> #5 release edge-a/T of old: left
[5] -> #6 forget old: removed
"""
    )


def test_what_went_through_several_hands_is_not_dropped_when_the_first_reader_comes_back() -> None:
    between, last = reader("between"), reader("last")
    inventory = with_sessions(
        end_jobs(deployed(FEED, OLD, between), "old", "between"),
        session(OLD, followed_by=client_id(between), begun=True, job=OLD),
        session(
            between, followed_by=client_id(last), former=client_id(OLD), begun=True, job=between
        ),
        session(last, former=client_id(between), job=last),
    )
    plan = plan_jobs(inventory, FEED, OLD)
    assert list_handovers(plan) == {"old": "last"}
    assert plan.queues == ()


@pytest.mark.parametrize("answers", [True, False])
def test_a_reader_that_is_being_stopped_is_not_followed_before_it_has(answers: bool) -> None:
    """It may stop before the session of its follower is reserved."""
    inventory = ask_to_stop(deployed(FEED, OLD), "old")
    silent = Observation({}, unreachable={"edge-a": "no answer"})
    seen = running(inventory) if answers else silent
    plan = plan_jobs(inventory, FEED, NEW, observed=seen)
    assert text(plan) == "\n[] -> #1 stop old on edge-a: asked to stop by an earlier change\n"
    assert plan.gate
    assert {each.job_name: str(each.action) for each in plan.jobs}["new"] == "add"


def test_a_reader_that_is_being_stopped_is_followed_by_a_session_that_is_there() -> None:
    follower = session(NEW, follows=client_id(OLD))
    inventory = with_sessions(ask_to_stop(deployed(FEED, OLD), "old"), follower)
    plan = plan_jobs(inventory, FEED, NEW)
    assert list_handovers(plan) == {"new": "old"}


def test_nobody_waits_for_a_stop_whose_queue_may_be_dropped() -> None:
    plan = plan_jobs(ask_to_stop(deployed(FEED, OLD), "old"), FEED, NEW, drop_queues=True)
    assert len(plan.steps) > 1
