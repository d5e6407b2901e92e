"""The service itself is killed."""

from __future__ import annotations

import random

import pytest

from tests.faults.conftest import EACH_BROKER
from tests.faults.trial import PAUSE, Trial, assert_nothing_lost, report

pytestmark = pytest.mark.long  # quick: tests/e2e/test_killed_service.py


def kill_in_mid_move(trial: Trial, rounds: int, seed: int) -> None:
    """Moves; the service dies at a random moment of each, and comes back."""
    dice = random.Random(seed)
    with trial.flowing() as flow:
        for number in range(rounds):
            place = {"second_at": ("edge-b", "cloud")[number % 2]}
            change = trial.begin(trial.chain(**place))
            PAUSE.wait(dice.uniform(0.0, 0.5))  # when the fault comes
            trial.kill_service()
            trial.start_service()
            trial.await_change(change)
            flow.recovered()
        result = flow.finish()
    report(f"service killed in mid-move, {rounds} times", "goes on after its start", trial, result)
    assert_nothing_lost(trial, result)


@EACH_BROKER
def test_service_killed_in_mid_move(trial: Trial) -> None:
    kill_in_mid_move(trial, 2, seed=1)


@EACH_BROKER
def test_service_killed_in_mid_move_often(trial: Trial) -> None:
    kill_in_mid_move(trial, 15, seed=2)
