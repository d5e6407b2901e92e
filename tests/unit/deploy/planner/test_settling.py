"""Readers that say again what they have taken before they change at the same record as others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import EndState, Incarnation, StartState
from speck.model.job_operations import CatchUp, Start, Stop, Switch
from speck.model.link_operations import HandOver
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.plans import deployed, job, plan_jobs, running, text
from tests.unit.deploy.planner.readers import (
    FEED,
    NEW,
    OLD,
    client_id,
    forget,
    observe_lost,
    session,
    with_sessions,
)
from tests.unit.deploy.planner.test_exchanges import AX, AY, BX, BY

READS_X = job("R", "cloud/x", "cloud/o")


def test_a_reader_says_first_what_it_has_taken_if_its_broker_has_forgotten_that() -> None:
    plan = plan_jobs(forget(deployed(AX, BY), "B"), AY, BX)
    assert plan.gate and not plan.gate.failed_too
    assert (
        text(plan)
        == """
[] -> #1 catch up edge-a/T of B: says again what it has taken: the broker of edge-a was restarted
"""
    )
    (step,) = plan.steps
    assert isinstance(step.operation, CatchUp)
    assert (step.operation.job, step.operation.attempt) == (BY, 2)
    assert (step.operation.client_id, step.operation.readers) == (client_id(BY), ())


def test_one_whose_start_was_refused_says_what_it_had_taken_before() -> None:
    inventory = forget(deployed(AX, BY), "B")
    refused = Incarnation(BY, 2, "2" * 32, StartState.VOID, base=inventory.jobs["B"])
    inventory = replace(inventory, jobs={**inventory.jobs, "B": refused}, attempts={"A": 1, "B": 2})
    plan = plan_jobs(inventory, AY, BX)
    assert [str(step.operation) for step in plan.steps] == ["catch up edge-a/T of B"]


@pytest.mark.parametrize("site", ["edge-a", "cloud"])
def test_one_whose_engine_died_as_it_stopped_publishes_first_what_it_has(site: str) -> None:
    """It goes on at another link, and who reads its old one leaves."""
    inventory = forget(deployed(AX, READS_X), "A")
    ended = replace(inventory.jobs["A"], savepoint=None)
    inventory = replace(inventory, jobs={**inventory.jobs, "A": ended})
    for wanted in ([replace(AX, sink=AY.sink, site=site)], [READS_X]):
        plan = plan_jobs(inventory, *wanted)
        (step,) = plan.steps
        assert isinstance(step.operation, CatchUp)
        assert step.operation.job == AX
        assert step.reason == "says what it has taken and sent: it had no savepoint when it ended"
    again = plan_jobs(inventory, AX, READS_X)
    assert [str(step.operation) for step in again.steps if "start" in str(step)] == [
        "start A on edge-a"
    ]


@pytest.mark.parametrize("removed", [False, True])
def test_one_that_was_lost_with_its_engine_runs_first_as_before(removed: bool) -> None:
    """What its last checkpoint holds may not be published: nothing else waits for it."""
    inventory = deployed(AX, READS_X)
    observed = observe_lost(inventory, "A")
    moved = [replace(AX, sink=AY.sink), replace(READS_X, source=AY.sink)]
    wanted = [READS_X] if removed else moved
    plan = plan_jobs(inventory, *wanted, observed=observed)
    starts = [step.operation for step in plan.steps if isinstance(step.operation, Start)]
    assert [start.job for start in starts] == [AX]
    assert plan.gate and not any(isinstance(step.operation, Stop) for step in plan.steps)
    same = plan_jobs(inventory, replace(AX, args=("--x",)), READS_X, observed=observed)
    assert same.gate is None


def test_a_reader_that_changes_alone_goes_on_where_it_ended() -> None:
    plan = plan_jobs(forget(deployed(AX, BY), "B"), AX, replace(BY, args=("--x",)))
    assert not plan.gate
    assert [each for each in plan.steps if isinstance(each.operation, CatchUp)] == []


def test_with_consent_to_drop_queues_it_is_tried_once() -> None:
    inventory = forget(deployed(AX, BY), "B")
    plan = plan_jobs(inventory, AY, BX, drop_queues=True)
    assert plan.gate and plan.gate.failed_too
    assert plan.reads == {inventory.jobs["B"].engine_job_id}
    then = plan_jobs(inventory, AY, BX, drop_queues=True, has_read=plan.reads)
    assert any(isinstance(each.operation, Switch) for each in then.steps)


@pytest.mark.parametrize("drop_queues", [False, True])
def test_with_consent_a_reader_whose_engine_is_silent_is_not_waited_for(drop_queues: bool) -> None:
    far = replace(BY, site="cloud")
    inventory = forget(deployed(AX, far), "B")
    seen = running(inventory)
    observed = Observation(
        {name: view for name, view in seen.engines.items() if name != "cloud"},
        unreachable={"cloud": "no answer"},
    )
    plan = plan_jobs(
        inventory, AY, replace(BX, site="cloud"), observed=observed, drop_queues=drop_queues
    )
    says_again = any("says again" in each.reason for each in plan.steps)
    assert says_again is not drop_queues


def test_a_switch_names_all_that_have_stopped_at_the_record() -> None:
    plan = plan_jobs(deployed(AX, BY, job("C", "edge-a/T", "cloud/z")), AY, BX)
    (switch,) = (s.operation for s in plan.steps if isinstance(s.operation, Switch))
    catching_up = [s.operation for s in plan.steps if isinstance(s.operation, CatchUp)]
    assert len(catching_up) == 2
    assert switch.readers == tuple(("edge-a", each.client_id) for each in catching_up)


@pytest.mark.parametrize("drop_queues", [False, True])
def test_so_does_a_reader_that_is_followed(drop_queues: bool) -> None:
    inventory = with_sessions(
        forget(deployed(FEED, OLD), "old"), session(NEW, follows=client_id(OLD), whole=True)
    )
    plan = plan_jobs(inventory, FEED, NEW, drop_queues=drop_queues)
    assert plan.gate
    assert [str(step.operation) for step in plan.steps] == ["catch up edge-a/T of old"]
    tried = frozenset({inventory.jobs["old"].engine_job_id})
    then = plan_jobs(inventory, FEED, NEW, drop_queues=True, has_read=tried)
    (handover,) = (s.operation for s in then.steps if isinstance(s.operation, HandOver))
    assert handover.trusts


def test_not_one_that_was_followed_before() -> None:
    """What it had taken is stored with the session of the one to which its link was handed over."""
    inventory = with_sessions(
        forget(deployed(FEED, OLD), "old"),
        session(OLD, followed_by=client_id(NEW)),
        session(NEW, former=client_id(OLD), job=NEW),
    )
    plan = plan_jobs(inventory, FEED, NEW)
    assert not any(isinstance(each.operation, CatchUp) for each in plan.steps)


def test_one_whose_start_at_another_link_was_refused_says_what_it_had_taken_of_its_own() -> None:
    elsewhere = job("old", "edge-a/T9", "cloud/x")
    inventory = forget(deployed(FEED, OLD), "old")
    refused = Incarnation(elsewhere, 2, "2" * 32, StartState.VOID, base=inventory.jobs["old"])
    inventory = with_sessions(
        replace(inventory, jobs={**inventory.jobs, "old": refused}),
        session(NEW, follows=client_id(OLD), whole=True),
        session(elsewhere),
    )
    plan = plan_jobs(inventory, FEED, NEW, elsewhere)
    (step,) = plan.steps
    assert isinstance(step.operation, CatchUp)
    assert (step.operation.job, step.operation.client_id) == (OLD, client_id(OLD))


@pytest.mark.parametrize("waits", [False, True])
def test_one_that_goes_on_at_another_link_says_first_what_its_follower_needs(waits: bool) -> None:
    """Also where the follower is not wanted any more, so that nobody follows it by this plan."""
    elsewhere = job("old", "edge-a/T9", "cloud/x")
    follower = [session(NEW, follows=client_id(OLD), whole=True, job=NEW)] if waits else []
    inventory = with_sessions(forget(deployed(FEED, OLD), "old"), *follower)
    plan = plan_jobs(inventory, elsewhere)
    says_again = any("says again" in each.reason for each in plan.steps)
    assert says_again is waits


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_job_that_has_ended_though_nobody_heard_it_is_stored_to_have_ended_first(
    is_wanted: bool,
) -> None:
    """The service died while it waited for the answer to the stop."""
    inventory = deployed(AX, BY)
    stopping = replace(inventory.jobs["A"], end=EndState.STOPPING)
    inventory = replace(inventory, jobs={**inventory.jobs, "A": stopping})
    observed = running(inventory, A=RunState.FINISHED)
    plan = plan_jobs(inventory, *((AX,) if is_wanted else ()), BY, observed=observed)
    assert plan.gate and not plan.gate.failed_too
    (step,) = plan.steps
    assert isinstance(step.operation, Stop) and step.operation.job_name == "A"
    assert step.reason == "has ended, as an earlier change had asked; its end was not heard"
