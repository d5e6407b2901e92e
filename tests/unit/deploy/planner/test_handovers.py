"""A link that changes hands: which reader follows which, by the text of the plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speck.model.job import Job
from speck.model.job_operations import Start
from speck.model.link_operations import HandOver, Reserve
from speck.model.observation import BrokerView, Sent, Taken
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running, sink_of, text
from tests.unit.deploy.planner.readers import (
    B2,
    FEED,
    FOREIGN,
    NEW,
    OLD,
    TAKEN,
    A,
    B,
    C,
    client_id,
    find_line,
    list_handovers,
    reader,
    session,
    steps_before,
    with_sessions,
)


def test_a_job_that_comes_between_follows_the_reader_while_the_producer_goes_on() -> None:
    assert (
        text(plan_jobs(deployed(A, B), A, C, B2))
        == """
[] -> #1 reserve edge-a/T2 for B: new reader
[] -> #2 reserve edge-a/T for C: follows B
[] -> #3 upload aaaaaaaa to cloud: needed there
[3] -> #4 try B on cloud: before it stops
[2] -> #5 drain edge-a/T for B: what was sent so far
[2,4,5] -> #6 stop B on cloud: source edge-a/T -> edge-a/T2
[2,6] -> #7 handover edge-a/T from B to C: goes on where B ended
[1,3,6] -> #8 start B on cloud: source edge-a/T -> edge-a/T2
[] -> #9 upload aaaaaaaa to edge-a: needed there
[1,2,7,9] -> #10 start C on edge-a: new job
[6,7,8,10] -> #11 release edge-a/T of B: left
"""
    )


def test_what_was_handed_over_is_not_given_back_by_a_failed_start() -> None:
    """B would read what C has been given: it has no way back."""
    assert "return" not in str(plan_jobs(deployed(A, B), A, C, B2))


def test_nor_where_the_follower_was_reserved_by_an_earlier_change() -> None:
    pending = with_sessions(deployed(A, B), session(C, follows=client_id(B)))
    plan = plan_jobs(pending, A, C, B2)
    assert list_handovers(plan) == {"C": "B"}
    assert "return" not in str(plan)


def test_the_session_of_a_follower_says_whose_it_follows() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2)
    reserves = [s.operation for s in plan.steps if isinstance(s.operation, Reserve)]
    assert {o.client_id: o.follows for o in reserves} == {
        client_id(B2): None,
        client_id(C): client_id(B),
    }
    (handover,) = (s.operation for s in plan.steps if isinstance(s.operation, HandOver))
    assert (handover.client_id, handover.former) == (client_id(C), client_id(B))


def test_a_removed_reader_that_is_followed_is_stopped_and_not_cancelled() -> None:
    """Only a stop says exactly what it has taken."""
    plan = str(plan_jobs(deployed(FEED, OLD), FEED, NEW))
    assert "stop old on edge-a" in plan
    assert "cancel old" not in plan


# -- a producer stays on its link and reads elsewhere --------------------------------------


def test_who_leaves_a_link_takes_what_its_producer_sent_before_it_reads_elsewhere() -> None:
    """And the producer starts again once those have left: the rest is for those that stay."""
    p, q = job("p", "edge-a/in", "edge-a/w"), job("q", "edge-a/in", "edge-a/T")
    q2 = replace(q, source=p.sink)
    stays, goes = reader("stays"), reader("goes", "cloud/y")
    plan = plan_jobs(deployed(q, stays, goes), p, q2, stays, replace(goes, source=p.sink))
    before = steps_before(plan)
    number = {str(step.operation).partition(" on ")[0]: step.id for step in plan.steps}
    stop_q, stop_s, start_q = (number[name] for name in ("stop q", "stop goes", "start q"))
    assert stop_q in before[stop_s]
    assert stop_s in before[start_q]


# -- all producers and readers of a link change -------------------------------------------


def test_a_link_whose_producers_all_leave_is_reserved_after_their_stop() -> None:
    """The new producer waits for the new reader, which goes on where the old one ended."""
    b, tail = job("b", "edge-a/b", "edge-a/m2"), job("tail", "edge-a/m2", "cloud/out")
    a, c = job("a", "edge-a/a", "edge-a/m2"), job("c", "edge-a/m2", "cloud/out")
    assert (
        text(plan_jobs(deployed(b, tail), a, c))
        == """
[] -> #1 reserve edge-a/a for a: new reader
[] -> #2 stop b on edge-a: no longer wanted
[2] -> #3 drain edge-a/m2 for tail: b left it
[3] -> #4 stop tail on edge-a: no longer wanted
[2] -> #5 reserve edge-a/m2 for c: follows tail
[4,5] -> #6 handover edge-a/m2 from tail to c: goes on where tail ended
[] -> #7 upload aaaaaaaa to edge-a: needed there
[5,6,7] -> #8 start c on edge-a: new job
[1,5,6,7,8] -> #9 start a on edge-a: new job
[2] -> #10 release edge-a/b of b: left; abandons what is queued (number not known)
[4,6,8] -> #11 release edge-a/m2 of tail: left
[2,3,10,11] -> #12 forget b: removed
[4,11] -> #13 forget tail: removed
"""
    )


def test_a_reader_waits_for_the_handover_if_it_was_reserved_while_the_producers_ran() -> None:
    """By an earlier change: its session may hold what the old one has taken."""
    b, tail = job("b", "edge-a/b", "edge-a/m2"), job("tail", "edge-a/m2", "cloud/out")
    a, c = job("a", "edge-a/a", "edge-a/m2"), job("c", "edge-a/m2", "cloud/out")
    plan = plan_jobs(with_sessions(deployed(b, tail), session(c, follows=client_id(tail))), a, c)
    (handover,) = (s for s in plan.steps if isinstance(s.operation, HandOver))
    (start,) = (s for s in plan.steps if str(s.operation) == "start c on edge-a")
    assert handover.id in start.after


# -- who follows whom ---------------------------------------------------------------------


P, Q = {"entry_class": "x.P"}, {"entry_class": "x.Q"}
TWO = (reader("o1", "cloud/x"), reader("o2", "cloud/y"))
OF_TWO_CLASSES = (reader("o1", "cloud/x", **P), reader("o2", "cloud/y", **Q))


@pytest.mark.parametrize(
    ("old", "new", "handovers"),
    [
        (TWO, (reader("n1", "cloud/y"), reader("n2", "cloud/x")), {"n1": "o2", "n2": "o1"}),
        (
            OF_TWO_CLASSES,
            (reader("n1", "cloud/v", **Q), reader("n2", "cloud/w", **P)),
            {"n1": "o2", "n2": "o1"},
        ),
        (
            OF_TWO_CLASSES,
            (reader("n1", "cloud/y", **P), reader("n2", "cloud/w", **P)),
            {"n1": "o2", "n2": "o1"},
        ),
        (
            OF_TWO_CLASSES,
            (
                reader("n2", "cloud/v", entry_class="x.R"),
                reader("n1", "cloud/w", entry_class="x.S"),
            ),
            {"n1": "o1", "n2": "o2"},
        ),
        (TWO, (reader("n1", "cloud/y"),), {"n1": "o2"}),
        ((OLD,), (job("new", "edge-a/other", "cloud/x"),), {}),
    ],
    ids=[
        "the same sink link",
        "the same class",
        "a sink link before a class",
        "nothing in common: by name",
        "one more leaves",
        "another link",
    ],
)
def test_which_reader_follows_which(
    old: tuple[Job, ...], new: tuple[Job, ...], handovers: dict[str, str]
) -> None:
    assert list_handovers(plan_jobs(deployed(FEED, *old), FEED, *new)) == handovers


def test_one_more_that_comes_follows_the_last_that_leaves() -> None:
    new = reader("n1", "cloud/y"), reader("n2", "cloud/x"), reader("n3", "cloud/z")
    plan = plan_jobs(deployed(FEED, *TWO), FEED, *new)
    assert list_handovers(plan) == {"n1": "o2", "n2": "o1", "n3": "o2"}
    starts = {
        s.id for s in plan.steps if str(s.operation) in ("start n1 on edge-a", "start n3 on edge-a")
    }
    (end,) = (s for s in plan.steps if str(s.operation) == "release edge-a/T of o2")
    assert len(starts) == 2
    assert starts <= set(end.after)


def test_a_reader_that_is_added_beside_another_follows_nobody() -> None:
    assert (
        text(plan_jobs(deployed(FEED, OLD), FEED, OLD, reader("new", "cloud/y")))
        == """
[] -> #1 reserve edge-a/T for new: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[1,2] -> #3 start new on edge-a: new job
"""
    )


@pytest.mark.parametrize(("old", "new"), [({}, FOREIGN), (FOREIGN, {}), (FOREIGN, FOREIGN)])
def test_a_reader_with_a_contract_of_its_own_neither_follows_nor_is_followed(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    plan = plan_jobs(deployed(FEED, replace(OLD, **old)), FEED, replace(NEW, **new))
    assert list_handovers(plan) == {}
    unnumbered = " and ".join(n for n, how in (("old", old), ("new", new)) if how)
    reserve = find_line(plan, "reserve edge-a/T for new")
    assert "new reader, at least once: it cannot go on where old ended, since" in reserve
    assert reserve.endswith(
        f"{unnumbered} {'number nothing' if old and new else 'numbers nothing'}"
    )
    assert "cancel old on edge-a" in str(plan)


# -- two exchange their links -------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            (job("x", "edge-a/s1", "cloud/t1"), job("y", "edge-a/s2", "cloud/t2")),
            (job("x", "edge-a/s2", "cloud/t2"), job("y", "edge-a/s1", "cloud/t1")),
        ),
        (
            (job("x", "edge-a/in", "edge-a/m"), job("y", "edge-a/m", "cloud/out")),
            (job("x", "edge-a/m", "cloud/out"), job("y", "edge-a/in", "edge-a/m")),
        ),
    ],
    ids=["side by side", "one after the other"],
)
@pytest.mark.parametrize("drop_queues", [False, True])
def test_two_jobs_can_exchange_their_links(
    old: tuple[Job, Job], new: tuple[Job, Job], drop_queues: bool
) -> None:
    plan = plan_jobs(deployed(*old), *new, drop_queues=drop_queues)
    assert list_handovers(plan) == {"x": "y", "y": "x"}
    before = steps_before(plan)
    kinds = {step.id: step.operation.kind for step in plan.steps}
    for step in plan.steps:
        kinds_before = {kinds[one] for one in before[step.id]}
        if step.operation.kind == "stop":
            assert kinds_before.isdisjoint({"start", "handover"}), step
        if step.operation.kind == "release":
            assert {"start", "handover"} <= kinds_before, step
    by_text = {str(step.operation): step.id for step in plan.steps}
    for one, other in (old, old[::-1]):
        handover = by_text[
            f"handover {one.source_site}/{one.source.topic} from {one.job_name} to {other.job_name}"
        ]
        assert by_text[f"stop {one.job_name} on edge-a"] in before[handover]


def test_nothing_of_a_link_that_changes_hands_is_left_to_do_afterwards() -> None:
    """The plan of what a handover leaves behind is empty."""
    after = with_sessions(deployed(FEED, NEW), session(NEW, skip=TAKEN))
    assert plan_jobs(after, FEED, NEW).empty


def test_what_a_followed_reader_has_not_taken_yet_is_not_abandoned() -> None:
    """The numbers are those of before the drain: after it none is left."""
    inventory = deployed(FEED, OLD)
    view = BrokerView(
        {client_id(OLD): Taken(1, {"p": {1: 2}})}, {sink_of(FEED): Sent("p", 1, 5, topic="T")}
    )
    observed = replace(running(inventory), brokers={"edge-a": view})
    plan = plan_jobs(inventory, FEED, NEW, observed=observed)
    assert find_line(plan, "release edge-a/T of old").endswith(": left")


# -- several jobs come between at a time ---------------------------------------------------


def test_a_job_starts_after_all_new_readers_downstream() -> None:
    """Also after those behind another job that takes over: if one of them cannot start, nothing
    waits in front of that job for its session only."""
    first, second = job("first", "edge-a/a", "edge-a/b"), job("second", "edge-a/b", "edge-a/c")
    added = job("f-next", "edge-a/f", "edge-a/b"), job("s-next", "edge-a/s", "edge-a/c")
    plan = plan_jobs(
        deployed(first, second),
        replace(first, sink=added[0].source),
        added[0],
        replace(second, sink=added[1].source),
        added[1],
    )
    starts = {
        step.operation.job_name: step for step in plan.steps if isinstance(step.operation, Start)
    }
    assert {starts["f-next"].id, starts["s-next"].id} <= set(starts["first"].after)
    assert starts["s-next"].id in starts["second"].after
    assert starts["first"].id not in starts["second"].after
