"""Readers that exchange, leave or take over sinks, by the text of the plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import EndState
from speck.model.job import Job
from speck.model.job_operations import CatchUp, Start
from speck.model.link import Link
from speck.model.observation import Observation, RunState
from speck.model.plan import Plan
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running, sink_of, text
from tests.unit.deploy.planner.readers import end_jobs

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
[1,5,7] -> #8 start A on edge-a: sink cloud/x -> cloud/y
[5,8] -> #9 clear A's numbers at cloud: its links changed
[1,5,7,8] -> #10 start B on edge-a: sink cloud/y -> cloud/x
[7,10] -> #11 clear B's numbers at cloud: its links changed
[1,3,5,7,8,10] -> #12 start feed on edge-a: stops for a moment: its readers change at the same record
"""  # noqa: E501
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
[7,8] -> #10 clear B's numbers at cloud: its links changed
[1,3,5,7,8] -> #11 start feed on edge-a: stops for a moment: its readers change at the same record
[5,8] -> #12 release edge-a/T of A: left
[5,12] -> #13 forget A: removed
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


def test_where_an_outside_program_feeds_the_link_the_readers_catch_up_with_each_other() -> None:
    """Neither comes back if its start fails: what waits for it is for its new link."""
    assert (
        text(plan_jobs(deployed(AX, BY), AY, BX))
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try A on edge-a: before it stops
[2] -> #3 stop A on edge-a: sink cloud/x -> cloud/y
[2] -> #4 stop B on edge-a: sink cloud/y -> cloud/x
[3,4] -> #5 catch up edge-a/T of A: ends at the same record as B
[3,4] -> #6 catch up edge-a/T of B: ends at the same record as A
[5,6] -> #7 switch A, B: from the same record of edge-a/T on; at least once where a publisher does not number its messages
[1,7] -> #8 start A on edge-a: sink cloud/x -> cloud/y
[7,8] -> #9 clear A's numbers at cloud: its links changed
[1,7,8] -> #10 start B on edge-a: sink cloud/y -> cloud/x
[7,10] -> #11 clear B's numbers at cloud: its links changed
"""  # noqa: E501
    )


def test_a_new_reader_of_such_a_link_begins_where_the_others_end() -> None:
    """Its session holds all that comes after the drain; it skips what the others have taken."""
    assert (
        text(plan_jobs(deployed(AX), AY, BX))
        == """
[] -> #1 reserve edge-a/T for B: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[1] -> #4 drain edge-a/T for A: what was sent so far
[1,3,4] -> #5 stop A on edge-a: sink cloud/x -> cloud/y
[1,5] -> #6 switch A, B: from the same record of edge-a/T on; at least once where a publisher does not number its messages
[1,2,6] -> #7 start A on edge-a: sink cloud/x -> cloud/y
[6,7] -> #8 clear A's numbers at cloud: its links changed
[1,2,6,7] -> #9 start B on edge-a: new job
"""  # noqa: E501
    )


def test_readers_behind_such_a_link_change_after_their_producers_have_caught_up() -> None:
    before = (job("A", "edge-a/T", "edge-a/p"), job("B", "edge-a/T", "edge-a/q"))
    plan = plan_jobs(
        deployed(*before, reader("C", "x", "p"), reader("D", "y", "q")),
        *before,
        reader("C", "y", "p"),
        reader("D", "x", "q"),
    )
    assert list_pausing(plan) == ["A", "B"]
    order = [
        str(step.operation) for step in plan.steps if step.operation.kind not in ("try", "clear")
    ]
    assert order[3:] == [
        "catch up edge-a/T of A",
        "catch up edge-a/T of B",
        "drain edge-a/p for C",
        "stop C on edge-a",
        "drain edge-a/q for D",
        "stop D on edge-a",
        "switch C, D",
        *(f"start {name} on edge-a" for name in "DCAB"),
    ]


def test_a_reader_that_was_to_stop_at_a_record_stops_first() -> None:
    """Where it is: if it ran on, those that have ended there would have to follow, and jobs behind
    them that have ended, too."""
    inventory = deployed(AX, BY)
    early = replace(inventory.jobs["A"], ends_early=True)
    inventory = replace(inventory, jobs={**inventory.jobs, "A": early})
    plan = plan_jobs(inventory, AY, BX)
    assert plan.gate
    (step,) = plan.steps
    assert str(step.operation) == "stop A on edge-a"
    assert step.reason == "an earlier change was interrupted while it caught up with others"
    silent = Observation({}, unreachable={"edge-a": "no answer"})
    assert len(plan_jobs(inventory, AY, BX, observed=silent).steps) > 1, "nobody waits for it"


@pytest.mark.parametrize("unable", ["numbers nothing", "no savepoints"])
def test_the_plan_says_so_if_the_readers_cannot_catch_up(unable: str) -> None:
    args = ("--in={source_topic}",) if unable == "numbers nothing" else ()
    before, after = (replace(AX, args=args), BY), (replace(AY, args=args), BX)
    cannot_save = frozenset({AX.engine} if unable == "no savepoints" else ())
    plan = plan_jobs(deployed(*before), *after, cannot_save=cannot_save)
    assert "switch" not in str(plan)
    assert "records around the cut may be lost or come twice" in str(plan)


def test_a_reader_that_does_not_run_first_takes_what_waits_for_it_to_its_former_link() -> None:
    stopped = end_jobs(deployed(FEED, AX, BY), "B")
    plan = plan_jobs(stopped, FEED, AY, BX)
    assert plan.gate
    starts = [s.operation for s in plan.steps if isinstance(s.operation, Start)]
    assert [(each.job_name, each.job.sink.topic) for each in starts] == [("B", "y")]


def test_one_that_an_earlier_change_has_stopped_catches_up_without_running_first() -> None:
    plan = plan_jobs(end_jobs(deployed(AX, BY), "B"), AY, BX)
    assert not plan.gate
    catching_up = [s.operation for s in plan.steps if isinstance(s.operation, CatchUp)]
    assert [each.job_name for each in catching_up] == ["A", "B"]


def test_a_reader_goes_on_behind_such_a_link_once_all_have_caught_up() -> None:
    """They look at what it has taken: what it takes from then on is not for them."""
    head, branch = job("A", "edge-a/T", "edge-a/p"), reader("E", "x", "p")
    changed = job("A", "edge-a/T", "edge-a/q"), reader("C", "x", "q"), reader("D", "y", "q")
    plan = plan_jobs(deployed(head, branch, BY), *changed)
    catching_up = {step.id for step in plan.steps if isinstance(step.operation, CatchUp)}
    (start,) = (step for step in plan.steps if str(step.operation) == "start A on edge-a")
    assert len(catching_up) == 2 and catching_up <= set(start.after)


def test_what_a_port_has_sent_comes_first_on_each_of_its_links() -> None:
    """P stops at the record at which S does, and keeps the link that B and C read: they take all
    that it has sent before S begins behind them."""
    port = job("P", "edge-a/T", "edge-a/p")
    before = port.with_port((port.sink, Link("edge-a", "q")))
    after = port.with_port((port.sink, Link("edge-a", "r")))
    b, c = job("B", "edge-a/p", "cloud/x"), reader("C", "x", "q")
    s, there = reader("S", "y"), job("S", "cloud/x", "cloud/y")
    there_now = job("B", "edge-a/p", "cloud/x", "cloud"), job("C", "edge-a/r", "cloud/x")
    plan = plan_jobs(deployed(FEED, before, b, c, s), FEED, after, *there_now, there)
    reasons = {str(step.operation): step.reason for step in plan.steps}
    assert reasons["drain edge-a/p for B"] == "P left it"
    assert reasons["drain edge-a/q for C"] == "P left it"


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


@pytest.mark.parametrize("left", [("C",), ("C", "D"), ("A", "C", "D")])
def test_a_reader_goes_back_past_a_chain_that_a_cancelled_change_has_stopped(
    left: tuple[str, ...],
) -> None:
    """Nothing reaches that chain now: what it will get parts from what the reader has at the
    input."""
    chain = {
        "A": job("A", "edge-a/p", "edge-a/q"),
        "C": job("C", "edge-a/q", "edge-a/r"),
        "D": reader("D", "x", "r"),
    }
    head, feed = job("B", "edge-a/T", "edge-a/p"), reader("B", "x")
    there = deployed(feed, reader("S", "y"), *(chain[name] for name in left))
    sessions = tuple(s for s in there.sessions if s.job_name not in left)
    ended = end_jobs(replace(there, sessions=sessions), *left)
    plan = plan_jobs(ended, head, *chain.values(), reader("S", "y", "r"))
    catching_up = [s.operation for s in plan.steps if isinstance(s.operation, CatchUp)]
    assert [each.job_name for each in catching_up] == ["B", "S"]


def test_a_job_that_nothing_reaches_yet_feeds_no_reader_that_begins() -> None:
    """An interrupted change has started it; what the one that leaves its sink link has sent there
    until its stop is not for the new reader."""
    waiting = job("A", "edge-a/q", "cloud/x")
    before = job("D", "edge-a/in", "edge-a/T"), reader("E", "x"), reader("S", "y")
    wanted = job("E", "edge-a/in", "edge-a/q"), waiting, job("S", "cloud/x", "cloud/y")
    plan = plan_jobs(deployed(*before, waiting), *wanted)
    steps = {str(step.operation): step for step in plan.steps}
    reserved = steps["reserve cloud/x for S"]
    assert steps["stop E on edge-a"].id in reserved.after
    assert reserved.id in steps["start E on edge-a"].after


@pytest.mark.parametrize("fed_outside", [False, True])
def test_a_cut_is_not_committed_by_a_job_behind_one_that_nobody_sends_to(fed_outside: bool) -> None:
    """An interrupted change has stopped A and T at one record, and started D for what A was to send
    from there on. A never did: T goes on where it ended. Unless others send to D."""
    a, t = job("A", "edge-a/in", "cloud/x"), job("T", "edge-a/in", "cloud/y")
    d, b = job("D", "edge-a/p", "edge-a/q"), job("B", "edge-a/q", "cloud/x")
    s = job("S", "cloud/x", "cloud/y")
    ended = end_jobs(deployed(a, t, d), "A", "T")
    of_a, of_t, of_d, of_b, of_s = (*ended.sessions, *deployed(b, s).sessions)
    of_d = replace(of_d, job=d, begun=True, fed_outside=fed_outside)
    of_b, of_s = replace(of_b, job=b), replace(of_s, job=s, instead_of=of_t.client_id)
    plan = plan_jobs(replace(ended, sessions=(of_a, of_t, of_d, of_b, of_s)), a, t)
    starts = [each.operation for each in plan.steps if isinstance(each.operation, Start)]
    committed = [client_id for each in starts for client_id, *_ in each.commits]
    assert plan.gate and [each.job_name for each in starts] == ["B", "S"]
    assert committed == ([of_s.client_id] if fed_outside else [])


def test_a_reader_behind_an_open_cut_gives_way_to_the_one_from_whom_its_records_are_taken() -> None:
    """A broker was killed while A stopped: its handover was refused, and all behind the cut have
    begun. A runs on first, and what it sends is for T once more: S would send that, too."""
    a, t, d = job("A", "edge-a/in", "edge-a/T"), reader("T", "y"), job("D", "edge-a/in", "edge-a/T")
    behind = reader("B", "q"), job("C", "cloud/q", "cloud/x"), job("S", "cloud/x", "cloud/y")
    there = end_jobs(deployed(a, t, *behind), "T")
    jobs = {**there.jobs, "A": replace(there.jobs["A"], end=EndState.STOPPING)}
    of_a, of_t, of_b, of_c, of_s, of_d = (*there.sessions, *deployed(d).sessions)
    of_a, of_t = replace(of_a, job=a, begun=True), replace(of_t, job=t, begun=True, drained=True)
    of_s = replace(of_s, job=behind[2], begun=True, instead_of=of_t.client_id)
    of_d = replace(of_d, job=d, follows=of_a.client_id, whole=True)
    interrupted = replace(there, jobs=jobs, sessions=(of_a, of_t, of_b, of_c, of_s, of_d))
    observed = running(interrupted, A=RunState.CANCELED)
    plan = plan_jobs(interrupted, d, *behind, observed=observed)
    order = [str(step.operation) for step in plan.steps if step.operation.kind in ("stop", "start")]
    assert plan.gate and order == ["stop S on edge-a", "start A on edge-a", "start T on edge-a"]


def test_a_reader_behind_a_cut_goes_on_if_nobody_takes_its_records_where_they_were_taken() -> None:
    """What A sends once more comes to S alone: nothing waits for T, from which its records are
    taken."""
    a, d = job("A", "edge-a/in", "edge-a/T"), job("D", "edge-a/in", "edge-a/T")
    t, s = job("T", "cloud/x", "cloud/y"), reader("S", "y")
    there = end_jobs(deployed(a, t, s), "A", "T")
    of_a, of_t, of_s = there.sessions
    of_a, of_t = replace(of_a, job=a, begun=True), replace(of_t, job=t, begun=True)
    of_s = replace(of_s, job=s, begun=True, left_by=(sink_of(a),), instead_of=of_t.client_id)
    plan = plan_jobs(replace(there, sessions=(of_a, of_t, of_s)), d, s)
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start A on edge-a: state stopped -> running
"""
    )


def test_a_job_that_comes_back_at_a_cut_waits_for_the_sessions_of_those_that_begin_there() -> None:
    """Its start may fail before they are reserved, for which it would have been waited."""
    a, d = job("A", "edge-a/in", "edge-a/x"), job("D", "edge-a/x", "cloud/o1")
    between = job("D", "edge-a/x", "edge-a/y"), job("B", "edge-a/y", "cloud/o1")
    before, after = job("T", "edge-a/in", "cloud/o2"), job("T", "edge-a/x", "cloud/o2")
    plan = plan_jobs(deployed(a, d, before), a, *between, after)
    steps = {str(step.operation): step for step in plan.steps}
    assert steps["reserve edge-a/x for T"].id in steps["return A to edge-a"].after
