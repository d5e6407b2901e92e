"""What is drained, released and abandoned when jobs leave their links."""

from __future__ import annotations

from dataclasses import replace

from speck.model.composition import Composition, Reader
from speck.model.ids import sink_client_id
from speck.model.incarnation import EndState, Session
from speck.model.job import Delivery, DesiredState, Upgrade
from speck.model.link import Link
from speck.model.link_operations import Drain
from speck.model.observation import BrokerView, Sent
from tests.unit.deploy.planner.plans import (
    INSTALLATION,
    A,
    B,
    deployed,
    job,
    plan_composition,
    plan_jobs,
    running,
    text,
)


def test_a_link_that_both_ends_leave_is_drained_between_their_stops() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    assert (
        text(plan_jobs(deployed(A, B), *new))
        == """
[] -> #1 reserve cloud/T-9 for B: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[3] -> #4 stop A on edge-a: sink cloud/T-2 -> cloud/T-9
[] -> #5 upload aaaaaaaa to cloud: needed there
[5] -> #6 try B on cloud: before it stops
[4] -> #7 drain cloud/T-2 for B: A left it
[6,7] -> #8 stop B on cloud: source cloud/T-2 -> cloud/T-9
[1,2,4] -> #9 start A on edge-a: sink cloud/T-2 -> cloud/T-9
[4,7,9] -> #10 clear A's numbers at cloud: its links changed
[1,5,8] -> #11 start B on cloud: source cloud/T-2 -> cloud/T-9
[8,11] -> #12 return B to cloud: if #11 fails
[8,9,11] -> #13 release cloud/T-2 of B: left
"""
    )


def test_removal_drains_from_the_beginning_to_the_end() -> None:
    assert (
        text(plan_jobs(deployed(A, B)))
        == """
[] -> #1 stop A on edge-a: no longer wanted
[1] -> #2 drain cloud/T-2 for B: A left it
[2] -> #3 cancel B on cloud: no longer wanted
[1] -> #4 release edge-a/T-1 of A: left; abandons what is queued (number not known)
[3] -> #5 release cloud/T-2 of B: left
[1,2,4,5] -> #6 forget A: removed
[3,5] -> #7 forget B: removed
"""
    )


def test_what_outsiders_read_is_released_after_its_producers_have_stopped() -> None:
    outside = Session("dashboard", B.sink, "cloud", None)
    inventory = deployed(A, B)
    plan = plan_jobs(replace(inventory, sessions=(*inventory.sessions, outside)))
    assert "[2] -> #3 stop B on cloud" in str(plan), "only a stop reports its last number"
    assert "[3] -> #6 release cloud/T-3 of dashboard: left" in str(plan)


def test_removal_without_draining_cancels_all_at_once() -> None:
    assert (
        text(plan_jobs(deployed(A, B), drop_queues=True, drain_limit_s=0))
        == """
drops the queue of A at edge-a/T-1 (number not known): the job leaves it undrained
drops the queue of B at cloud/T-2 (number not known): the job leaves it undrained
[] -> #1 cancel A on edge-a: no longer wanted
[] -> #2 cancel B on cloud: no longer wanted
[1] -> #3 release edge-a/T-1 of A: left; drops its queue
[2] -> #4 release cloud/T-2 of B: left; drops its queue
[1,3,4] -> #5 forget A: removed
[2,4] -> #6 forget B: removed
"""
    )


def test_the_plan_says_how_many_messages_a_reader_abandons() -> None:
    inventory = deployed(A, B)
    sink = sink_client_id(INSTALLATION, "A", A.source, A.sink)
    brokers = {"cloud": BrokerView({}, {sink: Sent("p", 1, 5)})}
    observed = replace(running(inventory), brokers=brokers)
    plan = plan_jobs(inventory, A, observed=observed)
    assert "release cloud/T-2 of B: left; abandons 5 queued messages" in str(plan)


def test_a_reader_that_stays_is_not_drained() -> None:
    assert "drain" not in str(plan_jobs(deployed(A, B), B))


def test_a_reader_in_the_middle_takes_what_was_sent_before_another_reads_on() -> None:
    read_on = job("B", "edge-a/X", "cloud/T-3", site="cloud")
    middle = job("M", "edge-a/X", "cloud/T-2")
    inventory = deployed(job("A", "edge-a/T-1", "edge-a/X"), middle, B)
    plan = plan_jobs(inventory, job("A", "edge-a/T-1", "edge-a/X"), read_on)
    assert (
        text(plan)
        == """
[] -> #1 reserve edge-a/X for B: follows M
[1] -> #2 drain edge-a/X for M: what was sent so far
[1,2] -> #3 stop M on edge-a: no longer wanted
[] -> #4 upload aaaaaaaa to cloud: needed there
[4] -> #5 try B on cloud: before it stops
[3] -> #6 drain cloud/T-2 for B: M left it
[5,6] -> #7 stop B on cloud: source cloud/T-2 -> edge-a/X
[1,3] -> #8 handover edge-a/X from M to B: goes on where M ended
[1,4,7,8] -> #9 start B on cloud: source cloud/T-2 -> edge-a/X
[7,9] -> #10 return B to cloud: if #9 fails
[7,9] -> #11 release cloud/T-2 of B: left
[3,8,9] -> #12 release edge-a/X of M: left
[3,6,11,12] -> #13 forget M: removed
"""
    )


def test_results_that_wait_for_a_checkpoint_are_published_by_a_stop() -> None:
    new = replace(A, args=("--x",), upgrade=Upgrade.STATELESS)
    exact = replace(A, delivery=Delivery.EXACTLY_ONCE)
    assert "stop A" in str(plan_jobs(deployed(exact, B), replace(new, delivery=exact.delivery), B))
    assert "stop A" in str(plan_jobs(deployed(A, B), replace(new, delivery=exact.delivery), B))


def test_a_job_without_state_whose_links_change_reports_its_last_number() -> None:
    new = replace(A, sink=Link("cloud", "T-9"), upgrade=Upgrade.STATELESS)
    assert "stop A on edge-a" in str(plan_jobs(deployed(A, B), new, B))
    new = replace(A, source=Link("edge-a", "T-9"), upgrade=Upgrade.STATELESS)
    assert "stop A on edge-a" in str(plan_jobs(deployed(A, B), new, B))


OUT = Session("dashboard", A.sink, "cloud", None)


def test_an_outsider_s_session_ends_before_it_begins_on_another_topic() -> None:
    inventory = replace(deployed(A), sessions=(*deployed(A).sessions, OUT))
    new = replace(A, sink=Link("cloud", "T-9"))
    desired = Composition("c", (new,), (Reader("dashboard", new.sink, "cloud"),))
    assert (
        text(plan_composition(desired, inventory))
        == """
drops the queue of dashboard at cloud/T-2 (number not known): its reader is outside speck
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try A on edge-a: before it stops
[2] -> #3 stop A on edge-a: sink cloud/T-2 -> cloud/T-9
[3] -> #4 release cloud/T-2 of dashboard: left; drops its queue
[4] -> #5 reserve cloud/T-9 for dashboard: new reader
[1,3,5] -> #6 start A on edge-a: sink cloud/T-2 -> cloud/T-9
[3,6] -> #7 clear A's numbers at cloud: its links changed
"""
    )


def test_a_failed_drain_does_not_keep_its_producer_down() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    plan = plan_jobs(deployed(A, B), *new)
    start = next(s for s in plan.steps if str(s.operation) == "start A on edge-a")
    drains = {s.id for s in plan.steps if isinstance(s.operation, Drain)}
    assert drains and not drains & {*start.after}


def test_what_a_reader_is_owed_is_drained_though_nobody_leaves_its_link() -> None:
    inventory = deployed(B)
    owed = replace(inventory.sessions[0], owed=(("p", 1, 3),))
    plan = plan_jobs(replace(inventory, sessions=(owed,)))
    assert "[] -> #1 drain cloud/T-2 for B: left from before" in str(plan)


def test_a_producer_that_has_stopped_before_is_drained() -> None:
    inventory = deployed(A, B)
    ended = replace(inventory.jobs["A"], end=EndState.ENDED, savepoint="file:/s")
    inventory = replace(inventory, jobs={**inventory.jobs, "A": ended})
    stopped = replace(A, state=DesiredState.STOPPED)
    assert "drain cloud/T-2 for B: A left it" in str(plan_jobs(inventory, stopped))


def test_of_a_jar_that_tells_no_numbers_nothing_is_known() -> None:
    foreign = replace(A, args=("--in={source_topic}",))
    sink = sink_client_id(INSTALLATION, "A", A.source, A.sink)
    plan = plan_jobs(deployed(foreign, B))
    drain = next(s.operation for s in plan.steps if isinstance(s.operation, Drain))
    assert drain.silent == (sink,)
    assert "release cloud/T-2 of B: left; abandons what is queued (number not known)" in str(plan)
