"""Changes that do not come to their end: they are cancelled, or others take their place."""

from __future__ import annotations

import random

import pytest

from speck.model.values import JsonObject
from tests.faults.conftest import EACH_BROKER
from tests.faults.trial import PAUSE, Trial, assert_nothing_lost, report
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, EACH_BROKER]

OVER = ("done", "failed", "cancelled")
ROUNDS = 6


def arrangement(trial: Trial, number: int) -> JsonObject:
    """One that differs from the one before in the place of the second job, the links between the
    two, or both."""
    chain = trial.chain(second_at=("edge-b", "cloud", "cloud")[number % 3], note=number // 2)
    if number % 2:
        for job, key in zip(chain["jobs"], ("sink_topic", "source_topic"), strict=True):
            job[key] = f"{trial.name}.other"
    return chain


def view(trial: Trial, change: str) -> JsonObject:
    return trial.call("GET", f"/changes/{change}")


def await_progress(trial: Trial, change: str, count: int) -> None:
    """Wait until so many operations are done, or the change is over."""

    def look() -> bool:
        found = view(trial, change)
        done = sum(each["state"] == "done" for each in found["operations"])
        return done >= count or found["state"] in OVER

    wait_for(look, f"{count} operations of {change}")


def await_over(trial: Trial, change: str) -> JsonObject:
    """The change once it is over, however it ended."""
    return wait_for(lambda: _over(view(trial, change)), f"the end of {change}")


def _over(found: JsonObject) -> JsonObject | None:
    return found if found["state"] in OVER else None


def test_changes_cancelled_in_their_middle(trial: Trial) -> None:
    dice = random.Random(4)
    ends = []
    with trial.flowing() as flow:
        for number in range(1, ROUNDS + 1):
            change = trial.begin(arrangement(trial, number))
            await_progress(trial, change, dice.randint(1, 6))
            trial.call("POST", f"/changes/{change}/cancel", 200, 202, 409)
            ends.append(await_over(trial, change)["state"])
            PAUSE.wait(dice.uniform(0.0, 1.0))  # any moment will do
            if number % 2:
                trial.apply(arrangement(trial, number))
                flow.recovered()
        trial.apply(trial.chain(note=99))
        flow.recovered()
        result = flow.finish()
    fault = f"changes cancelled in their middle, {ROUNDS} times"
    report(fault, "applied again, or others after them", trial, result, cancelled=ends)
    assert "cancelled" in ends
    assert_nothing_lost(trial, result)


def test_blocked_changes_superseded(trial: Trial) -> None:
    """The engines of the jobs stop to answer in the middle; another composition takes the place."""
    dice = random.Random(5)
    superseded = 0
    with trial.flowing() as flow:
        for number in range(1, ROUNDS + 1):
            change = trial.begin(arrangement(trial, number))
            await_progress(trial, change, dice.randint(1, 6))
            proxies = [trial.proxies[site]["engine"] for site in ("edge-a", "edge-b", "cloud")]
            for proxy in proxies:
                proxy.set("refuse")
            try:
                found = wait_for(
                    lambda c=change: _stuck(view(trial, c)), "a change that is blocked"
                )
                if found["state"] == "blocked":
                    after = wait_for(lambda n=number: take_place(trial, n + 1), "its place")
            finally:
                for proxy in proxies:
                    proxy.set()
            if found["state"] == "blocked":
                superseded += "superseded_by" in await_over(trial, change)
                trial.await_change(after)
            flow.recovered()
        trial.apply(trial.chain(note=99))
        flow.recovered()
        result = flow.finish()
    fault = f"blocked changes superseded, {superseded} times"
    report(fault, "the next one inherits what they owe", trial, result)
    assert superseded
    assert_nothing_lost(trial, result)


def _stuck(found: JsonObject) -> JsonObject | None:
    return found if found["state"] in (*OVER, "blocked") else None


def take_place(trial: Trial, number: int) -> str:
    """Ask for the next arrangement; empty while the one before still tries."""
    body = arrangement(trial, number)
    answer = trial.call("POST", "/compositions", 200, 202, 409, json=body, params={"wait": 0})
    return str(answer.get("change", ""))


@pytest.mark.parametrize("site", ["cloud", "edge-b"], ids=["source", "target"])
def test_agent_killed_in_mid_move(trial: Trial, site: str) -> None:
    """It brings the state, or fetches it: the move waits for its next life."""
    with trial.flowing() as flow:
        for number in range(4):
            place = {"second_at": ("edge-b", "cloud")[number % 2]}
            change = trial.begin(trial.chain(**place))
            PAUSE.wait(0.2 * (number + 1))  # when the fault comes
            trial.fog.kill(site, "agent")
            trial.fog.start(site)
            trial.await_change(change)
            flow.recovered()
        result = flow.finish()
    which = "source" if site == "cloud" else "target"
    expected = "waits for its next life"
    report(f"agent of the {which} killed in mid-move, 4 times", expected, trial, result)
    assert_nothing_lost(trial, result)
