"""Starts that the engine has not answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import StartState
from speck.model.job_operations import Start
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.plans import NOT_LISTED, A, plan_jobs, running, text, with_open_start


def test_a_start_without_an_answer_is_sent_again_under_its_id() -> None:
    plan = plan_jobs(with_open_start(A), A, observed=NOT_LISTED)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start A on edge-a: not started yet: not running: edge-a does not know it
"""
    )
    assert plan.jobs[0].action == "add"
    assert plan.steps[1].operation.attempt == 1  # type: ignore[union-attr]


def test_a_start_without_an_answer_is_settled_before_another() -> None:
    plan = plan_jobs(with_open_start(A), replace(A, args=("--x",)), observed=NOT_LISTED)
    assert [step.operation.kind for step in plan.steps] == ["upload", "try", "fence", "start"]
    assert plan.steps[-1].after == (1, 3)
    assert plan.steps[-1].operation.attempt == 2  # type: ignore[union-attr]


def test_a_start_that_the_engine_took_on_and_forgot_is_no_new_job() -> None:
    plan = plan_jobs(with_open_start(A, start=StartState.ACCEPTED), A, observed=NOT_LISTED)
    assert plan.steps[-1].operation.attempt == 2  # type: ignore[union-attr]
    assert plan.steps[-1].operation.keeps_state  # type: ignore[union-attr]


def test_silence_does_not_turn_a_start_without_an_answer_into_a_stop() -> None:
    silent = Observation({}, unreachable={"edge-a": "no answer"})
    plan = plan_jobs(with_open_start(A), replace(A, args=("--x",)), observed=silent)
    assert "fence" in [step.operation.kind for step in plan.steps]


@pytest.mark.parametrize("start", [StartState.REQUESTED, StartState.ACCEPTED])
@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RESTARTING])
def test_a_start_of_a_service_that_has_died_is_waited_for(
    start: StartState, state: RunState
) -> None:
    """The start is the same, so it is not sent again; what follows comes after it."""
    inventory = with_open_start(A, start=start)
    plan = plan_jobs(inventory, A, observed=running(inventory, A=state))
    (step,) = [each for each in plan.steps if isinstance(each.operation, Start)]
    assert isinstance(step.operation, Start)
    assert step.reason.startswith("not started yet: not running: its tasks are starting")
    assert step.operation.engine_job_id == inventory.jobs["A"].engine_job_id
