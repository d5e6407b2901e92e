"""Readers that exchange, leave or take over sinks, by the text of the plans."""

from __future__ import annotations

import pytest

from speck.model.job import Job
from speck.model.plan import Plan
from tests.unit.deploy.planner.test_planner import deployed, job, plan_jobs, text

FEED = job("feed", "edge-a/in", "edge-a/T")
MOMENT = "stops for a moment: its readers change at the same record"


def reader(name: str, sink: str, source: str = "T") -> Job:
    return job(name, f"edge-a/{source}", f"cloud/{sink}")


AX, AY, BX, BY = reader("A", "x"), reader("A", "y"), reader("B", "x"), reader("B", "y")


def list_pausing(plan: Plan) -> list[str]:
    """The jobs that stop for a moment."""
    return [change.job_name for change in plan.jobs if change.reason == MOMENT]


def test_two_readers_exchange_their_sinks_at_the_last_record_of_their_producer() -> None:
    """Neither comes back if its start fails: the other one writes to its former sink."""
    assert (
        text(plan_jobs(deployed(FEED, AX, BY), FEED, AY, BX))
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try feed on edge-a: before it stops
[2] -> #3 stop feed on edge-a: stops for a moment: its readers change at the same record
[3] -> #4 drain edge-a/T for A: feed left it
[2,4] -> #5 stop A on edge-a: sink cloud/x -> cloud/y
[3] -> #6 drain edge-a/T for B: feed left it
[2,6] -> #7 stop B on edge-a: sink cloud/y -> cloud/x
[1,5] -> #8 start A on edge-a: sink cloud/x -> cloud/y
[1,7] -> #9 start B on edge-a: sink cloud/y -> cloud/x
[1,3,5,7,8,9] -> #10 start feed on edge-a: stops for a moment: its readers change at the same record
"""
    )


def test_a_reader_is_promoted_once_it_has_taken_what_the_removed_one_has() -> None:
    """The removed one is not cancelled: what it has taken is to come out."""
    assert (
        text(plan_jobs(deployed(FEED, AX, BY), FEED, BX))
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try feed on edge-a: before it stops
[2] -> #3 stop feed on edge-a: stops for a moment: its readers change at the same record
[3] -> #4 drain edge-a/T for A: feed left it
[4] -> #5 stop A on edge-a: no longer wanted
[3] -> #6 drain edge-a/T for B: feed left it
[2,6] -> #7 stop B on edge-a: sink cloud/y -> cloud/x
[1,7] -> #8 start B on edge-a: sink cloud/y -> cloud/x
[7,8] -> #9 return B to edge-a: if #8 fails
[1,3,5,7,8] -> #10 start feed on edge-a: stops for a moment: its readers change at the same record
[5] -> #11 release edge-a/T of A: left
[5,11] -> #12 forget A: removed
"""
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((AX, BY), (BX, reader("C", "y"))),
        ((AX,), (AY, BX)),
        ((AX, BY), (AY, reader("B", "z"))),
        ((AX, BY, reader("C", "z")), (AY, reader("B", "z"), reader("C", "x"))),
    ],
    ids=["renamed", "left to a new one", "taken from one that goes elsewhere", "rotated"],
)
def test_the_producer_stops_where_a_reader_that_stays_gets_or_leaves_the_sink_of_another(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    assert list_pausing(plan_jobs(deployed(FEED, *before), FEED, *after)) == ["feed"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((AX,), (AY,)),
        ((AX,), (reader("C", "x"),)),
        ((AX, BY), (AX, BY, reader("C", "z"))),
        ((AX, BY), (AY, BY)),
        ((AX, BY), (AX, reader("C", "y"))),
    ],
    ids=["only moved", "replaced", "added", "joined", "one of two replaced"],
)
def test_the_producer_goes_on_where_no_reader_gets_the_sink_of_one_that_stays(
    before: tuple[Job, ...], after: tuple[Job, ...]
) -> None:
    assert list_pausing(plan_jobs(deployed(FEED, *before), FEED, *after)) == []


def test_readers_of_different_links_change_where_their_records_part() -> None:
    """All jobs between take what the producer had sent, and stop too."""
    before = (job("A", "edge-a/T", "edge-a/p"), job("B", "edge-a/T", "edge-a/q"))
    c, d = reader("C", "x", "p"), reader("D", "y", "q")
    plan = plan_jobs(
        deployed(FEED, *before, c, d), FEED, *before, reader("C", "y", "p"), reader("D", "x", "q")
    )
    assert list_pausing(plan) == ["A", "B", "feed"]
    assert [str(step.operation) for step in plan.steps if step.operation.kind == "drain"] == [
        "drain edge-a/T for A",
        "drain edge-a/T for B",
        "drain edge-a/p for C",
        "drain edge-a/q for D",
    ]
