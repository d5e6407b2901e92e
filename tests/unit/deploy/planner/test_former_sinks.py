"""The numbers that a job reported under earlier sources or links."""

from __future__ import annotations

from dataclasses import replace

from speck.model.ids import source_client_id
from speck.model.incarnation import FormerSink, Inventory, StaleSink
from speck.model.job import Job, Upgrade
from speck.model.job_operations import Forget
from speck.model.link import Link
from speck.model.link_operations import Clear, Drain
from speck.model.observation import BrokerView, RunState, Sent, Taken
from tests.unit.deploy.planner.plans import (
    INSTALLATION,
    NOT_LISTED,
    A,
    B,
    deployed,
    fed_by,
    former_of,
    plan_jobs,
    running,
    sink_of,
    start_of,
    text,
    with_open_start,
)


def with_former(*topics: str, now: Job = A) -> Inventory:
    """`now` and B run; `now` had these topics as its source before, over the same sink link."""
    inventory = deployed(now, B)
    former = tuple(FormerSink(now.sink, sink_of(fed_by(topic))) for topic in topics)
    a = replace(inventory.jobs["A"], former_sinks=former)
    return replace(inventory, jobs={**inventory.jobs, "A": a})


def test_a_changed_source_leaves_the_numbers_of_the_sink_s_link() -> None:
    plan = plan_jobs(deployed(A, B), fed_by("T-8"), B)
    assert (
        text(plan)
        == """
[] -> #1 reserve edge-a/T-8 for A: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[3] -> #4 stop A on edge-a: source edge-a/T-1 -> edge-a/T-8
[1,2,4] -> #5 start A on edge-a: source edge-a/T-1 -> edge-a/T-8
[4,5] -> #6 return A to edge-a: if #5 fails
[4,5] -> #7 release edge-a/T-1 of A: left; abandons what is queued (number not known)
"""
    )
    assert former_of(start_of(plan, "A")) == (sink_of(A),)


def test_a_start_on_the_same_sink_link_remembers_what_the_one_before_did() -> None:
    inventory = with_former("T-7")
    for new in (replace(A, args=("--x",)), replace(A, upgrade=Upgrade.STATELESS, parallelism=2)):
        assert former_of(start_of(plan_jobs(inventory, new, B), "A")) == (sink_of(fed_by("T-7")),)
    failed = running(inventory, A=RunState.FAILED)
    plan = plan_jobs(inventory, A, B, observed=failed)
    assert former_of(start_of(plan, "A")) == (sink_of(fed_by("T-7")),)


def test_a_start_that_is_sent_again_remembers_the_same() -> None:
    former = (FormerSink(A.sink, sink_of(fed_by("T-7"))),)
    plan = plan_jobs(with_open_start(A, former_sinks=former), A, observed=NOT_LISTED)
    assert start_of(plan, "A").former_sinks == former


def test_a_source_that_comes_back_is_no_former_one() -> None:
    plan = plan_jobs(with_former("T-7", "T-8"), fed_by("T-7"), B)
    assert former_of(start_of(plan, "A")) == (sink_of(fed_by("T-8")), sink_of(A))
    assert "clear" not in str(plan)


def test_a_drain_goes_by_the_numbers_told_under_former_sources_too() -> None:
    plan = plan_jobs(with_former("T-7", now=fed_by("T-8")))
    assert (
        text(plan)
        == """
[] -> #1 stop A on edge-a: no longer wanted
[1] -> #2 drain cloud/T-2 for B: A left it
[2] -> #3 cancel B on cloud: no longer wanted
[1] -> #4 release edge-a/T-8 of A: left; abandons what is queued (number not known)
[3] -> #5 release cloud/T-2 of B: left
[1,2,4,5] -> #6 forget A: removed
[3,5] -> #7 forget B: removed
"""
    )
    both = {sink_of(fed_by("T-7")), sink_of(fed_by("T-8"))}
    drain = next(s.operation for s in plan.steps if isinstance(s.operation, Drain))
    assert set(drain.sinks) == both
    assert drain.silent == ()
    forget = next(s.operation for s in plan.steps if isinstance(s.operation, Forget))
    assert [set(left.sinks) for left in forget.left] == [both]


def test_all_numbers_are_cleared_once_the_sink_leaves_its_link() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    plan = plan_jobs(with_former("T-7"), *new)
    (cleared,) = (s for s in plan.steps if isinstance(s.operation, Clear))
    drain = next(s for s in plan.steps if isinstance(s.operation, Drain))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert isinstance(cleared.operation, Clear)
    assert set(cleared.operation.sinks) == {sink_of(fed_by("T-7")), sink_of(A)}
    assert {start.id, drain.id} <= {*cleared.after}
    assert former_of(start_of(plan, "A")) == ()


def test_a_sink_on_another_link_takes_no_place_of_a_former_one() -> None:
    new = replace(fed_by("T-7"), sink=Link("cloud", "T-9"))
    plan = plan_jobs(with_former("T-7"), new, B)
    (clear,) = (s.operation for s in plan.steps if isinstance(s.operation, Clear))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert sink_of(new) not in clear.sinks and not start.whatever


def test_what_a_job_said_of_two_links_is_cleared_one_after_the_other() -> None:
    """Each stores the incarnation without its own reports: at once, one would be undone."""
    inventory = deployed(A)
    stale = [StaleSink("cloud", Link("cloud", t), f"{t}-out") for t in ("T-7", "T-8")]
    jobs = {"A": replace(inventory.jobs["A"], stale=tuple(stale))}
    plan = plan_jobs(replace(inventory, jobs=jobs), A)
    first, second = (s for s in plan.steps if isinstance(s.operation, Clear))
    assert first.id in second.after
    assert first.id in second.whatever, "the second is tried even if the first fails"


def test_the_numbers_of_the_last_eight_sources_are_kept() -> None:
    plan = plan_jobs(with_former(*(f"S-{n}" for n in range(8))), fed_by("T-8"), B)
    sinks = former_of(start_of(plan, "A"))
    assert sinks == (*(sink_of(fed_by(f"S-{n}")) for n in range(1, 8)), sink_of(A))
    clear = next(s for s in plan.steps if isinstance(s.operation, Clear))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert isinstance(clear.operation, Clear)
    assert clear.operation.sinks == (sink_of(fed_by("S-0")),)
    assert clear.id not in start.after


def test_what_was_sent_under_former_sources_counts_as_abandoned() -> None:
    inventory = with_former("T-7", "T-8")
    reader = source_client_id(INSTALLATION, "B", B.source)
    sent = {sink_of(fed_by("T-7")): Sent("i-A", 1, 9), sink_of(A): Sent("i-A", 3, 5)}
    cloud = BrokerView({reader: Taken(1, {"i-A": {1: 2}})}, sent)
    observed = replace(running(inventory), brokers={"cloud": cloud})
    plan = plan_jobs(inventory, A, observed=observed)
    assert "release cloud/T-2 of B: left; abandons 12 queued messages" in str(plan)
