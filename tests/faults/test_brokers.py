"""Brokers die with what they have acknowledged, and fill up."""

from __future__ import annotations

import pytest

from tests.faults.conftest import MakeTrial
from tests.faults.trial import RATE, Trial, assert_nothing_lost, report

pytestmark = pytest.mark.long


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("site", ["edge-a", "cloud"])
def test_broker_killed_in_full_flow(make_trial: MakeTrial, site: str, delivery: str) -> None:
    trial = make_trial(delivery)
    with trial.flowing() as flow:
        for _ in range(3):
            flow.go_on(7)  # past an autosave, so that sessions are on disk
            trial.fog.kill(site, "broker")
            trial.fog.start(site)
            flow.recovered()
        result = flow.finish()
    which = "first" if site == "edge-a" else "last"
    report(f"{which} broker killed in full flow, 3 times", "sent again", trial, result)
    assert_nothing_lost(trial, result)


def test_broker_killed_with_a_backlog(trial: Trial) -> None:
    """The reader is stopped, its session fills for 20 s, the broker dies and comes back."""
    with trial.flowing() as flow:
        stopped = trial.chain()
        stopped["jobs"][1]["state"] = "stopped"
        trial.apply(stopped)
        flow.feed.check()
        goal = flow.feed.sent + int(20 * RATE)
        flow.await_sent(goal)
        trial.fog.kill("cloud", "broker")
        trial.fog.start("cloud")
        trial.apply(trial.chain())
        flow.recovered()
        result = flow.finish()
    report(
        "broker killed with a backlog", "saved by its autosave, the rest sent again", trial, result
    )
    assert_nothing_lost(trial, result)
