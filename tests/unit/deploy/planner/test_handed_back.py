"""Readers that come back, or are not wanted any more, after or before a handover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.job_operations import Start
from speck.model.link_operations import Release, Reserve
from speck.model.observation import BrokerView, Sent
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running, sink_of, text
from tests.unit.deploy.planner.readers import (
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
    plan_jobs_beside,
    reader,
    session,
    with_sessions,
)

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
    assert find_line(plan, "release edge-a/T of C").endswith(": left"), "nothing is abandoned"


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
