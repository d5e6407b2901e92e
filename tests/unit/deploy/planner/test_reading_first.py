"""Readers that read first what waits for them, before a link changes hands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import Inventory
from speck.model.job import Job
from speck.model.job_operations import Start
from speck.model.observation import BrokerView, Sent, Taken
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running, sink_of, text
from tests.unit.deploy.planner.readers import (
    B2,
    FEED,
    NEW,
    OLD,
    TAKEN,
    A,
    B,
    C,
    client_id,
    end_jobs,
    find_drain,
    find_line,
    list_handovers,
    observe_lost,
    reader,
    session,
    with_sessions,
)


def test_a_lost_reader_that_is_to_be_followed_reads_first() -> None:
    """Nobody else has what waits for it: it runs again as it was, and all else waits."""
    inventory = deployed(FEED, OLD, job("other", "edge-a/o1", "edge-a/o2"))
    changed = job("other", "edge-a/o1", "edge-a/o2", args=("--x",))
    plan = plan_jobs(inventory, FEED, NEW, changed, observed=observe_lost(inventory, "old"))
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start old on edge-a: not running: edge-a does not know it
"""
    )
    start = plan.steps[-1].operation
    assert isinstance(start, Start) and start.job == OLD
    assert {c.job_name: c.reason for c in plan.jobs} == {
        "feed": "left alone",
        "old": "not running: edge-a does not know it",
        "other": "left alone",
    }


def test_a_reader_that_read_first_is_followed_by_the_plan_after_that() -> None:
    plan = plan_jobs(deployed(FEED, OLD), FEED, NEW)
    assert not plan.gate
    assert list_handovers(plan) == {"new": "old"}


def test_what_reads_first_writes_to_a_link_that_has_its_readers_but_hands_over_nothing() -> None:
    """The link behind changes hands in the plan after that."""
    tail, tail2 = (job(name, "cloud/x", "cloud/y", site="cloud") for name in ("tail", "tail2"))
    inventory = deployed(FEED, OLD, tail)
    plan = plan_jobs(inventory, FEED, NEW, tail2, observed=observe_lost(inventory, "old"))
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 reserve cloud/x for tail2: follows tail
[] -> #2 upload aaaaaaaa to edge-a: needed there
[1,2] -> #3 start old on edge-a: not running: edge-a does not know it
"""
    )


def test_a_lost_reader_is_left_where_what_waits_is_not_wanted() -> None:
    inventory = deployed(FEED, OLD)
    observed = observe_lost(inventory, "old")
    plan = plan_jobs(inventory, FEED, NEW, observed=observed, drop_queues=True, drain_limit_s=0)
    assert not plan.gate
    assert "start old" not in str(plan)
    plan = plan_jobs(inventory, FEED, NEW, observed=observed, drop_queues=True)
    assert str(plan) == str(plan_jobs(inventory, FEED, NEW, observed=observed))


FORGOTTEN = with_sessions(
    end_jobs(deployed(FEED, OLD), "old"),
    session(NEW, reserved=False, follows=client_id(OLD), skip=TAKEN),
)
"""The old reader has stopped, and the broker has lost the session of the one that follows it."""


UNFOLLOWED = with_sessions(
    end_jobs(deployed(FEED, OLD), "old"), session(NEW, follows=client_id(OLD))
)
"""The old reader has stopped, and the change was cancelled before the new one's handover."""


@pytest.mark.parametrize(
    ("inventory", "wanted"),
    [(FORGOTTEN, NEW), (UNFOLLOWED, reader("third"))],
    ids=["the broker lost the follower's session", "another follower is wanted"],
)
def test_the_old_reader_comes_back_first(inventory: Inventory, wanted: Job) -> None:
    """What has come since it stopped is in no session that is going to be read."""
    plan = plan_jobs(inventory, FEED, wanted)
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start old on edge-a: state stopped -> running
"""
    )


def test_what_neither_an_old_reader_nor_its_follower_reads_any_more_is_abandoned_once() -> None:
    numbers = BrokerView(
        {client_id(OLD): Taken(1, {"p": {1: 4}})}, {sink_of(FEED): Sent("p", 1, 9, topic="T")}
    )
    observed = replace(running(UNFOLLOWED), brokers={"edge-a": numbers})
    plan = plan_jobs(UNFOLLOWED, FEED, observed=observed)
    assert not plan.gate
    assert list(map(str, plan.queues)) == [
        "drops the queue of old at edge-a/T (about 5 messages): the job does not run"
    ]
    assert find_line(plan, "release edge-a/T of old").endswith(": left; drops its queue")
    assert find_line(plan, "release edge-a/T of new").endswith(": left")


def test_an_old_reader_that_went_on_elsewhere_comes_back_first_too() -> None:
    """B reads behind C already, which has never begun."""
    inventory = with_sessions(
        deployed(A, B2), session(B), session(C, reserved=False, follows=client_id(B), skip=TAKEN)
    )
    plan = plan_jobs(inventory, A, C, B2)
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to cloud: needed there
[1] -> #2 try B on cloud: before it stops
[2] -> #3 stop B on cloud: source edge-a/T2 -> edge-a/T
[1,3] -> #4 start B on cloud: source edge-a/T2 -> edge-a/T
[3,4] -> #5 return B to cloud: if #4 fails
"""
    )


def test_a_reader_leaves_no_link_that_another_one_begins_to_write_to_in_the_same_plan() -> None:
    """`head` was to write to a third link, which `between` reads by now, when the change was
    cancelled. It takes what waits for it while `tail` is still behind it; `tail` takes what comes
    from `between` in a plan after that."""
    head = job("head", "edge-a/in", "edge-a/m1")
    tail, between = job("tail", "edge-a/m1", "edge-a/out"), job("between", "edge-a/m2", "edge-a/m3")
    coming = job("tail", "edge-a/m3", "edge-a/out")
    inventory = with_sessions(
        end_jobs(deployed(head, tail, between), "head"),
        session(head, begun=True, job=head),
        session(tail, begun=True, job=tail),
        session(between, job=between),
        session(coming, job=coming),
    )
    plan = plan_jobs(inventory, job("tail", "edge-a/in", "edge-a/out"))
    assert plan.gate
    assert [s.operation.job for s in plan.steps if isinstance(s.operation, Start)] == [head]
    assert not plan.queues


def test_a_follower_whose_session_was_lost_is_reserved_anew_once_the_old_reader_runs() -> None:
    back = replace(FORGOTTEN, jobs=deployed(FEED, OLD).jobs)
    plan = plan_jobs(back, FEED, NEW)
    assert not plan.gate
    assert find_line(plan, "reserve edge-a/T for new").endswith(": follows old")
    assert list_handovers(plan) == {"new": "old"}
    assert find_drain(plan).followed
