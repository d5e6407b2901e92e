"""Ways back of what cannot start, state that travels, and circles."""

from __future__ import annotations

from dataclasses import replace

from speck.model.composition import Composition
from speck.model.incarnation import EndState, Incarnation, Inventory, StartState
from speck.model.job import Job, Upgrade
from speck.model.job_operations import Return, Start
from speck.model.link import Link
from speck.model.observation import RunState
from speck.model.plan import Plan
from tests.unit.deploy.planner.plans import (
    A,
    B,
    deployed,
    fed_by,
    former_of,
    job,
    moved,
    plan_composition,
    plan_jobs,
    running,
    sink_of,
    start_of,
    text,
)

APART = frozenset({("edge-a", "edge-b"), ("edge-b", "edge-a")})


def apart(inventory: Inventory, *jobs: Job) -> Plan:
    """Planned where edge-a and edge-b cannot read each other's storage."""
    return plan_composition(Composition("c", jobs), inventory, apart=APART)


def test_state_is_carried_after_the_stop_and_before_the_start() -> None:
    assert (
        text(apart(deployed(A), moved(A, "edge-b")))
        == """
[] -> #1 upload aaaaaaaa to edge-b: needed there
[1] -> #2 try A on edge-b: before it stops
[2] -> #3 stop A on edge-a: site edge-a -> edge-b
[3] -> #4 carry A's state from edge-a to edge-b: they share no storage
[1,3,4] -> #5 start A on edge-b: site edge-a -> edge-b
[3,5] -> #6 return A to edge-a: if #5 fails
"""
    )


def test_no_state_is_carried_for_a_stateless_move_or_between_sites_that_share_it() -> None:
    stateless = replace(moved(A, "edge-b"), upgrade=Upgrade.STATELESS)
    assert "carry" not in str(apart(deployed(A), stateless))
    assert "carry" not in str(apart(deployed(A), moved(A, "cloud")))
    assert "carry" not in str(apart(deployed(A), replace(A, args=("--x",))))


def test_state_that_a_failed_move_left_behind_is_carried_by_the_next() -> None:
    """The failed attempt at edge-b left none; that of the one before lies at edge-a."""
    before = deployed(A).jobs["A"]
    there = moved(A, "edge-b")
    failed = Incarnation(there, 2, "f" * 32, start=StartState.VOID, end=EndState.ENDED, base=before)
    inventory = replace(deployed(A), jobs={"A": failed})
    assert "carry A's state from edge-a to edge-b" in str(apart(inventory, there))
    assert "carry" not in str(apart(inventory, A))


def test_nothing_comes_back_where_another_has_been_given_its_link() -> None:
    elsewhere = replace(A, source=Link("edge-a", "T-8"))
    plan = str(plan_jobs(deployed(A, B), elsewhere, B, job("C", "edge-a/T-1", "cloud/T-7")))
    assert "return A" not in plan


def test_nothing_comes_back_that_could_close_a_circle() -> None:
    """C is rewired from T-5 to write what A, as it was, reads."""
    c = job("C", "cloud/T-5", "cloud/T-6")
    new = (
        replace(A, source=Link("edge-a", "T-8")),
        replace(c, source=Link("cloud", "T-3"), sink=Link("edge-a", "T-1")),
    )
    plan = str(plan_jobs(deployed(A, B, c), *new, B))
    assert "start A" in plan
    assert "return A" not in plan


def test_what_was_told_by_a_failed_start_is_remembered_by_what_comes_back() -> None:
    new = fed_by("T-8")
    plan = plan_jobs(deployed(A, B), new, B)
    (back,) = (s.operation for s in plan.steps if isinstance(s.operation, Return))
    assert former_of(back) == (sink_of(new),)
    assert (back.attempt, back.failed) == (3, start_of(plan, "A").engine_job_id)


def test_a_job_that_does_not_run_has_no_way_back() -> None:
    inventory = deployed(A)
    plan = plan_jobs(inventory, A, observed=running(inventory, A=RunState.FAILED))
    assert "return" not in str(plan)


def test_a_start_that_would_close_a_circle_waits_for_what_stops() -> None:
    """While A still leads T-1 to T-2, what B takes from T-2 would come back to T-1 for ever."""
    old_b = job("B", "cloud/T-8", "cloud/T-9", site="cloud")
    new_a = job("A", "edge-a/T-6", "edge-a/T-7")
    new_b = job("B", "cloud/T-2", "edge-a/T-1", site="cloud")
    plan = plan_jobs(deployed(A, old_b), new_a, new_b)
    stop = next(s.id for s in plan.steps if str(s.operation) == "stop A on edge-a")
    started = next(
        s for s in plan.steps if isinstance(s.operation, Start) and s.operation.job == new_b
    )
    assert stop in started.after


def test_a_circle_that_runs_already_can_be_taken_apart() -> None:
    back = job("B", "cloud/T-2", "edge-a/T-1", site="cloud")
    plan = plan_jobs(deployed(A, back))
    assert plan.summary()["remove"] == 2
    assert all(before < step.id for step in plan.steps for before in step.after)
