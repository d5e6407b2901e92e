"""What a plan notices of incarnations whose start was not heard of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.deploy.planned_sites import find_newly_begun
from speck.model.incarnation import StartState
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.plans import deployed, job, running

A = job("A", "edge-a/in", "edge-a/x")
COMMITS = (("reader", A, False),)


@pytest.mark.parametrize(
    ("stored", "observed", "noticed"),
    [
        (StartState.REQUESTED, RunState.RUNNING, StartState.CONFIRMED),
        (StartState.REQUESTED, RunState.STARTING, StartState.ACCEPTED),
        (StartState.REQUESTED, RunState.RESTARTING, StartState.ACCEPTED),
        (StartState.REQUESTED, RunState.FAILED, None),
        (StartState.ACCEPTED, RunState.RUNNING, StartState.CONFIRMED),
        (StartState.ACCEPTED, RunState.STARTING, None),
        (StartState.CONFIRMED, RunState.RUNNING, None),
    ],
)
def test_a_start_that_has_arrived_is_noticed(
    stored: StartState, observed: RunState, noticed: StartState | None
) -> None:
    inventory = deployed(A)
    old = replace(inventory.jobs["A"], start=stored, commits=COMMITS)
    inventory = replace(inventory, jobs={"A": old})
    begun = find_newly_begun(inventory, running(inventory, A=observed))
    expected = {} if noticed is None else {"A": replace(old, start=noticed, commits=())}
    assert begun == expected


def test_nothing_is_noticed_of_an_engine_that_does_not_know_it() -> None:
    inventory = deployed(A)
    inventory = replace(
        inventory, jobs={"A": replace(inventory.jobs["A"], start=StartState.REQUESTED)}
    )
    assert find_newly_begun(inventory, Observation({})) == {}
