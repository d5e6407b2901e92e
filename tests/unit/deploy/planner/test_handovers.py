"""A link that changes hands: which reader follows which, by the text of the plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

import pytest

from speck.deploy.planner.situation import Outside
from speck.model.composition import Composition
from speck.model.ids import source_client_id
from speck.model.incarnation import EndState, Inventory, Session
from speck.model.job import Delivery, Job
from speck.model.job_operations import Start
from speck.model.link import Link
from speck.model.link_operations import Drain, HandOver, Release, Reserve
from speck.model.observation import BrokerView, Observation, Sent, Taken, TakenEpoch
from speck.model.plan import Plan
from tests.unit.deploy.planner.test_planner import (
    INSTALLATION,
    deployed,
    job,
    plan_composition,
    plan_jobs,
    running,
    sink_of,
    text,
)

FEED = job("feed", "edge-a/in", "edge-a/T")
TAKEN = (TakenEpoch("01234567-feed", 1 << 32, 4),)


def reader(name: str, sink: str = "cloud/x", **more: object) -> Job:
    """A reader of the link that FEED writes to."""
    return job(name, "edge-a/T", sink, **more)  # type: ignore[arg-type]


OLD, NEW = reader("old"), reader("new")
FOREIGN = {"args": ("--in={source_topic}",)}


def client_id(of: Job) -> str:
    return source_client_id(INSTALLATION, of.job_name, of.source)


def session(of: Job, **more: Any) -> Session:
    return Session(client_id(of), of.source, of.source_site, of.job_name, **more)


def with_sessions(inventory: Inventory, *sessions: Session) -> Inventory:
    """Put in place of those of the same client id, or added."""
    by_client = {s.client_id: s for s in (*inventory.sessions, *sessions)}
    return replace(inventory, sessions=tuple(by_client.values()))


def end_jobs(inventory: Inventory, *names: str) -> Inventory:
    """With these jobs stopped by an earlier change."""
    jobs = dict(inventory.jobs)
    for name in names:
        jobs[name] = replace(jobs[name], end=EndState.ENDED, savepoint="file:/s")
    return replace(inventory, jobs=jobs)


def forget(inventory: Inventory, *names: str) -> Inventory:
    """With these jobs stopped, at a broker that may have forgotten what they had taken."""
    ended = end_jobs(inventory, *names)
    forgotten = {name: ended.jobs[name].forgotten() for name in names}
    return replace(ended, jobs={**ended.jobs, **forgotten})


def observe_lost(inventory: Inventory, name: str) -> Observation:
    """All run but one, which its engine does not know any more."""
    others = {n: d for n, d in inventory.jobs.items() if n != name}
    return running(replace(inventory, jobs=others))


def ask_to_stop(inventory: Inventory, name: str) -> Inventory:
    """With a job that an earlier change has asked to stop, without an answer."""
    stopping = replace(inventory.jobs[name], end=EndState.STOPPING)
    return replace(inventory, jobs={**inventory.jobs, name: stopping})


def list_handovers(plan: Plan) -> dict[str, str]:
    """Follower -> the reader that it follows."""
    operations = (step.operation for step in plan.steps)
    return {o.job_name: o.former_job for o in operations if isinstance(o, HandOver)}


def find_line(plan: Plan, operation: str) -> str:
    """The line of the step that does `operation`."""
    (text,) = (str(s) for s in plan.steps if str(s.operation) == operation)
    return text


def find_drain(plan: Plan) -> Drain:
    (drain,) = (s.operation for s in plan.steps if isinstance(s.operation, Drain))
    return drain


def steps_before(plan: Plan) -> dict[int, set[int]]:
    """Of each step all that come before it, near or far. Raises CycleError if there is a circle."""
    direct = {step.id: set(step.after) for step in plan.steps}
    before: dict[int, set[int]] = {}
    for step_id in TopologicalSorter(direct).static_order():
        before[step_id] = direct[step_id].union(*(before[one] for one in direct[step_id]))
    return before


# -- a job comes between ------------------------------------------------------------------

A = FEED
B = job("B", "edge-a/T", "cloud/out", site="cloud")
C = job("C", "edge-a/T", "edge-a/T2")
B2 = job("B", "edge-a/T2", "cloud/out", site="cloud")


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


# -- what a followed drain waits for ------------------------------------------------------


def plan_jobs_beside(
    *jobs: Job,
    inventory: Inventory,
    inputs: Sequence[Link] = (),
    outside_sinks: Mapping[Link, Sequence[str]] | None = None,
) -> Plan:
    """Planned where links are fed from outside, or by jobs of other compositions."""
    desired = Composition("c", jobs, inputs=tuple(inputs))
    return plan_composition(desired, inventory, outside=Outside(sinks=outside_sinks or {}))


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


def test_readers_with_the_same_sink_link_follow_each_other() -> None:
    old = reader("o1", "cloud/x"), reader("o2", "cloud/y")
    new = reader("n1", "cloud/y"), reader("n2", "cloud/x")
    assert list_handovers(plan_jobs(deployed(FEED, *old), FEED, *new)) == {"n1": "o2", "n2": "o1"}


def test_readers_of_the_same_class_follow_each_other_where_no_sink_link_is_the_same() -> None:
    old = reader("o1", "cloud/x", entry_class="x.P"), reader("o2", "cloud/y", entry_class="x.Q")
    new = reader("n1", "cloud/v", entry_class="x.Q"), reader("n2", "cloud/w", entry_class="x.P")
    assert list_handovers(plan_jobs(deployed(FEED, *old), FEED, *new)) == {"n1": "o2", "n2": "o1"}


def test_a_sink_link_counts_more_than_a_class() -> None:
    old = reader("o1", "cloud/x", entry_class="x.P"), reader("o2", "cloud/y", entry_class="x.Q")
    new = reader("n1", "cloud/y", entry_class="x.P"), reader("n2", "cloud/w", entry_class="x.P")
    assert list_handovers(plan_jobs(deployed(FEED, *old), FEED, *new)) == {"n1": "o2", "n2": "o1"}


def test_readers_that_have_nothing_in_common_follow_each_other_by_name() -> None:
    old = reader("o1", "cloud/x", entry_class="x.P"), reader("o2", "cloud/y", entry_class="x.Q")
    new = reader("n2", "cloud/v", entry_class="x.R"), reader("n1", "cloud/w", entry_class="x.S")
    assert list_handovers(plan_jobs(deployed(FEED, *old), FEED, *new)) == {"n1": "o1", "n2": "o2"}


def test_one_more_that_comes_follows_the_last_that_leaves() -> None:
    old = reader("o1", "cloud/x"), reader("o2", "cloud/y")
    new = reader("n1", "cloud/y"), reader("n2", "cloud/x"), reader("n3", "cloud/z")
    plan = plan_jobs(deployed(FEED, *old), FEED, *new)
    assert list_handovers(plan) == {"n1": "o2", "n2": "o1", "n3": "o2"}
    starts = {
        s.id for s in plan.steps if str(s.operation) in ("start n1 on edge-a", "start n3 on edge-a")
    }
    (end,) = (s for s in plan.steps if str(s.operation) == "release edge-a/T of o2")
    assert len(starts) == 2
    assert starts <= set(end.after)


def test_one_more_that_leaves_is_followed_by_nobody() -> None:
    old = reader("o1", "cloud/x"), reader("o2", "cloud/y")
    plan = plan_jobs(deployed(FEED, *old), FEED, reader("n1", "cloud/y"))
    assert list_handovers(plan) == {"n1": "o2"}


def test_readers_of_different_links_do_not_follow_each_other() -> None:
    elsewhere = job("new", "edge-a/other", "cloud/x")
    assert list_handovers(plan_jobs(deployed(FEED, OLD), FEED, elsewhere)) == {}


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


# -- what is weaker -----------------------------------------------------------------------


def test_without_a_drain_the_handover_says_what_is_abandoned() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2, drop_queues=True, drain_limit_s=0)
    assert find_line(plan, "handover edge-a/T from B to C").endswith(
        ": goes on where B ended; what it had not taken when it stopped is abandoned (no drain)"
    )


def test_without_a_drain_a_reader_that_is_followed_is_not_drained() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2, drop_queues=True, drain_limit_s=0)
    assert "drain edge-a/T for B" not in str(plan)


def test_with_consent_to_drop_queues_a_reader_that_is_followed_is_drained_for_a_while() -> None:
    plan = plan_jobs(deployed(A, B), A, C, B2, drop_queues=True, drain_limit_s=9)
    assert find_line(plan, "drain edge-a/T for B").endswith(
        ": what was sent so far; what it has not taken in 9 s is dropped"
    )
    assert plan.queues == ()


@pytest.mark.parametrize("how", ["inputs", "other composition", "nobody known"])
def test_where_some_feed_the_link_unseen_the_handover_promises_at_least_once(how: str) -> None:
    there = () if how == "nobody known" else (FEED,)
    plan = plan_jobs_beside(
        *there,
        NEW,
        inventory=deployed(*there, OLD),
        inputs=(OLD.source,) if how == "inputs" else (),
        outside_sinks={OLD.source: ("theirs-out",)} if how == "other composition" else None,
    )
    assert find_line(plan, "handover edge-a/T from old to new").endswith(
        ": goes on where old ended; at least once where a publisher does not number its messages"
    )


def test_where_all_is_numbered_the_handover_promises_no_less() -> None:
    plan = plan_jobs(deployed(FEED, OLD), FEED, NEW)
    assert find_line(plan, "handover edge-a/T from old to new").endswith(
        ": goes on where old ended"
    )


# -- a change that was not finished -------------------------------------------------------

HANDED_OVER = with_sessions(
    end_jobs(deployed(FEED, OLD), "old"),
    session(OLD, followed_by=client_id(NEW)),
    session(NEW, skip=TAKEN),
)
"""The old reader has stopped and its numbers are handed over; the new one has never started."""

PENDING = with_sessions(deployed(FEED, OLD), session(NEW, follows=client_id(OLD)))
"""The new reader's session is there; the old one still reads."""


def test_what_was_handed_over_is_handed_back_when_the_old_reader_is_wanted_again() -> None:
    plan = plan_jobs(HANDED_OVER, FEED, OLD)
    assert not plan.gate
    assert text(plan).startswith(
        """
[] -> #1 handover edge-a/T from new to old: goes on where new ended
[] -> #2 upload aaaaaaaa to edge-a: needed there
[1,2] -> #3 start old on edge-a: state stopped -> running
[1,3] -> #4 release edge-a/T of new: left"""
    )
    assert len(plan.steps) == 4


def test_what_is_not_handed_back_does_not_come_back_either() -> None:
    """The change before this one has stopped the old reader, so there is a way back for it. The
    new reader has the link until it is handed back, and may have taken what waits there."""
    plan = plan_jobs(HANDED_OVER, FEED, OLD, stopped_jobs=frozenset({"old"}))
    assert text(plan).startswith(
        """
[] -> #1 handover edge-a/T from new to old: goes on where new ended
[] -> #2 upload aaaaaaaa to edge-a: needed there
[1,2] -> #3 start old on edge-a: state stopped -> running
[1,3] -> #4 return old to edge-a: if #3 fails
"""
    )


@pytest.mark.parametrize("whole", [True, False])
def test_a_follower_that_was_there_before_the_drain_has_all_that_its_reader_left(
    whole: bool,
) -> None:
    """A change has ended early, and the old reader reads another link since."""
    elsewhere = job("old", "edge-a/o", "cloud/x")
    inventory = with_sessions(
        deployed(elsewhere),
        session(OLD, begun=True, job=OLD),
        session(NEW, follows=client_id(OLD), whole=whole, job=NEW),
    )
    plan = plan_jobs_beside(NEW, inventory=inventory, inputs=(OLD.source,))
    assert list_handovers(plan) == {"new": "old"}
    assert [queue.topic for queue in plan.queues] == ([] if whole else ["T"])


def test_a_lost_reader_takes_first_what_jobs_have_sent_that_have_left_its_link() -> None:
    """A change has let the producer leave the link, and could not drain the reader any more."""
    elsewhere = job("feed", "edge-a/o", "edge-a/T2")
    inventory = with_sessions(
        deployed(elsewhere, OLD),
        session(OLD, begun=True, job=OLD, owed=(("01234567-feed", 1 << 32, 4),)),
    )
    lost = replace(observe_lost(inventory, "old"), brokers={"edge-a": BrokerView({}, {})})
    plan = plan_jobs(inventory, elsewhere, observed=lost)
    assert plan.gate and not plan.queues
    assert "start old on edge-a" in str(plan)


REWIRED = job("C", "edge-a/o", "edge-a/T2")
"""C, as it ran before it was to read what B reads."""

HALF_BACK = with_sessions(
    end_jobs(deployed(A, B, REWIRED), "B", "C"),
    session(B, followed_by=client_id(C)),
    session(C, skip=TAKEN),
)
WAITING = BrokerView({}, {sink_of(A): Sent("p", 1, 9, topic="T")})


def test_a_follower_that_never_read_the_link_does_not_have_to_when_it_goes_back() -> None:
    """All that waits for it waits for the old reader, too."""
    observed = replace(running(HALF_BACK), brokers={"edge-a": WAITING})
    plan = plan_jobs(HALF_BACK, A, B, REWIRED, observed=observed)
    assert not plan.gate
    assert list_handovers(plan) == {"B": "C"}


def test_what_is_handed_back_is_not_abandoned() -> None:
    observed = replace(running(HALF_BACK), brokers={"edge-a": WAITING})
    plan = plan_jobs(HALF_BACK, A, B, REWIRED, observed=observed)
    assert find_line(plan, "release edge-a/T of C").endswith(": left")


def test_the_way_back_lasts_until_the_follower_has_started_also_in_a_later_plan() -> None:
    """The follower's first start failed. What it is to read lies in the old session, too: that
    is needed if the broker has forgotten the new one."""
    plan = plan_jobs(HANDED_OVER, FEED, NEW)
    (start,) = (s for s in plan.steps if isinstance(s.operation, Start))
    (end,) = (s for s in plan.steps if isinstance(s.operation, Release))
    assert start.id in end.after


def test_a_follower_whose_start_failed_is_started_without_another_handover() -> None:
    plan = plan_jobs(HANDED_OVER, FEED, NEW)
    assert not plan.gate
    assert list_handovers(plan) == {}
    assert "start new on edge-a" in str(plan)
    assert "reserve" not in str(plan)
    assert find_line(plan, "release edge-a/T of old").endswith(": left"), "the follower has it all"


def test_a_follower_that_is_not_wanted_any_more_abandons_nothing_while_the_old_reader_stays() -> (
    None
):
    plan = plan_jobs(PENDING, FEED, OLD)
    assert text(plan) == "\n[] -> #1 release edge-a/T of new: left\n"
    (end,) = (s.operation for s in plan.steps if isinstance(s.operation, Release))
    assert end.abandons == 0


def test_a_follower_that_was_reserved_before_goes_on_after_the_old_readers_stop() -> None:
    assert (
        text(plan_jobs(PENDING, FEED, NEW))
        == """
[] -> #1 drain edge-a/T for old: what was sent so far
[1] -> #2 stop old on edge-a: no longer wanted
[2] -> #3 handover edge-a/T from old to new: goes on where old ended
[] -> #4 upload aaaaaaaa to edge-a: needed there
[3,4] -> #5 start new on edge-a: new job
[2,3,5] -> #6 release edge-a/T of old: left
[2,6] -> #7 forget old: removed
"""
    )


def test_a_reader_whose_follower_was_reserved_before_is_drained_as_one_that_is_followed() -> None:
    """Of what was published before that reservation only the old reader holds anything."""
    assert find_drain(plan_jobs(PENDING, FEED, NEW)).followed


def test_a_reader_fed_from_outside_whose_follower_was_reserved_before_is_drained() -> None:
    """Without it what the old reader has not taken yet is lost: apply, cancel it while it drains,
    and apply again."""
    pending = with_sessions(deployed(OLD), session(NEW, follows=client_id(OLD)))
    plan = plan_jobs_beside(NEW, inventory=pending, inputs=(OLD.source,))
    assert "drain edge-a/T for old" in str(plan)


def test_another_one_that_is_wanted_in_place_of_a_follower_follows_the_old_reader() -> None:
    third = reader("third")
    plan = plan_jobs(PENDING, FEED, third)
    assert list_handovers(plan) == {"third": "old"}
    assert find_line(plan, "release edge-a/T of new").endswith(": left")


def test_a_follower_whose_old_reader_is_wanted_too_begins_anew() -> None:
    """Its session holds what the other one reads."""
    assert (
        text(plan_jobs(PENDING, FEED, OLD, NEW))
        == """
[] -> #1 release edge-a/T of new: left
[1] -> #2 reserve edge-a/T for new: new reader
[] -> #3 upload aaaaaaaa to edge-a: needed there
[2,3] -> #4 start new on edge-a: new job
"""
    )


def test_an_old_reader_that_is_wanted_beside_its_follower_begins_anew() -> None:
    plan = plan_jobs(HANDED_OVER, FEED, OLD, NEW)
    assert list_handovers(plan) == {}
    (end,) = (s for s in plan.steps if isinstance(s.operation, Release))
    (again,) = (s for s in plan.steps if isinstance(s.operation, Reserve))
    assert str(end.operation) == "release edge-a/T of old"
    assert str(again.operation) == "reserve edge-a/T for old"
    assert end.id in again.after


# -- readers and sessions that got lost ---------------------------------------------------


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


def test_the_old_reader_comes_back_first_when_the_broker_lost_the_followers_session() -> None:
    plan = plan_jobs(FORGOTTEN, FEED, NEW)
    assert plan.gate
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start old on edge-a: state stopped -> running
"""
    )


UNFOLLOWED = with_sessions(
    end_jobs(deployed(FEED, OLD), "old"), session(NEW, follows=client_id(OLD))
)
"""The old reader has stopped, and the change was cancelled before the new one's handover."""


def test_the_old_reader_comes_back_first_when_another_follower_is_wanted() -> None:
    """What has come since it stopped is in no session that is going to be read."""
    plan = plan_jobs(UNFOLLOWED, FEED, reader("third"))
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


# -- several readers that follow one ------------------------------------------------------

OTHER = reader("other", "cloud/z")


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
    """A change was cancelled when it had handed the link over to the first of two."""
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
[2] -> #3 start new on edge-a: new job
[1,2] -> #4 start other on edge-a: new job
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


# -- readers that are being stopped -------------------------------------------------------


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
