"""Brokers die with what they have acknowledged, and fill up."""

from __future__ import annotations

import pytest

from bench.instruments.checker import Checker
from binders.mqtt.broker import MqttBroker
from speck.binding import Target
from speck.fog import mosquitto
from speck.model.values import JsonObject
from tests.faults.conftest import EACH_BROKER, MakeTrial
from tests.faults.trial import RATE, Trial, assert_nothing_lost, report
from tests.waiting import wait_for

pytestmark = pytest.mark.long  # quick: tests/e2e/test_killed_broker.py


def test_broker_killed_once(trial: Trial) -> None:
    with trial.flowing() as flow:
        flow.go_on(6)  # past an autosave, so that sessions are on disk
        trial.fog.kill("cloud", "broker")
        trial.fog.start("cloud")
        flow.recovered()
        result = flow.finish()
    report("last broker killed in full flow, once", "sent again", trial, result)
    assert_nothing_lost(trial, result)


@EACH_BROKER
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


@EACH_BROKER
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


def _with_readers_away(trial: Trial, late_state: str) -> JsonObject:
    """The chain, with readers that are not there beside those that are: outside readers of both
    links of the broker in the cloud, and a job whose output another one awaits."""
    chain = trial.chain()
    late = dict(chain["jobs"][0], job_name=trial.job("late"), site="cloud", state=late_state)
    late |= {"source_site": "cloud", "source_topic": f"{trial.name}.mid"}
    late |= {"sink_topic": f"{trial.name}.late"}
    chain["jobs"].append(late)
    for topic in AWAY:
        reader = {"topic": f"{trial.name}.{topic}", "client_id": f"{trial.name}-away-{topic}"}
        chain["outputs"].append({"site": "cloud", **reader})
    return chain


AWAY = ("mid", "out", "late")


@EACH_BROKER
@pytest.mark.parametrize("saved", [True, False], ids=["after an autosave", "before an autosave"])
@pytest.mark.parametrize("served", [True, False], ids=["", "without the service"])
def test_broker_killed_while_readers_are_away(trial: Trial, saved: bool, served: bool) -> None:
    """Other readers of their links have sessions on disk, and so hide that theirs are gone. What
    was sent after their reservation is all there when they come."""
    with trial.flowing() as flow:
        flow.go_on(6)  # past an autosave
        trial.apply(_with_readers_away(trial, "stopped"))
        reserved_at = flow.feed.sent
        flow.go_on(7 if saved else 1)
        if not served:
            trial.kill_service()
        trial.fog.kill("cloud", "broker")
        trial.fog.start("cloud")
        if not served:
            flow.await_sent(flow.feed.sent + int(20 * RATE))  # longer than the resend window
            trial.start_service()
        flow.recovered()
        trial.apply(_with_readers_away(trial, "running"))
        result = flow.finish()
        missing = {}
        for topic in AWAY:
            reader = f"{trial.name}-away-{topic}"
            with Checker(trial.broker("cloud"), f"{trial.name}.{topic}", reader) as away:
                away.await_past(result.count.published - 1)
                numbers = away.missing(result.count.published)
            missing[topic] = [number for number in numbers if number > reserved_at]
    moment = f"{'after' if saved else 'before'} an autosave"
    report(
        f"broker killed {moment}, readers away{'' if served else ', service away for 20 s'}",
        "their sessions saved or made again, the rest sent again",
        trial,
        result,
        lost=result.count.lost + sum(map(len, missing.values())),
    )
    assert_nothing_lost(trial, result)
    assert {topic: (len(lost), lost[:3]) for topic, lost in missing.items()} == dict.fromkeys(
        AWAY, (0, [])
    )


ROOM = 5000
"""Messages that the narrow broker keeps for a reader that is away."""


def test_queue_of_a_broker_full(trial: Trial) -> None:
    """Expected loss: the broker drops what no longer fits and acknowledges it all the same. What
    the readers tell as missing is exactly what is lost."""
    site = next(it for it in trial.fog.sites() if it.name == "cloud")
    folder = trial.fog.folder / "sites" / "cloud" / "broker"
    trial.fog.kill("cloud", "broker")
    with (
        mosquitto.start(
            folder,
            host=site.host,
            port=site.broker_port,
            settings={"max_queued_messages": str(ROOM), "max_inflight_messages": "1000"},
        ),
        trial.flowing() as flow,
    ):
        stopped = trial.chain()
        stopped["jobs"][1]["state"] = "stopped"
        trial.apply(stopped)
        flow.await_sent(flow.feed.sent + 2 * ROOM + int(5 * RATE))
        trial.apply(trial.chain())
        flow.recovered()
        flow.go_on(3)
        result = flow.finish()
        count = wait_for(lambda: missing(trial, result.count.lost), "the reader's numbers", 15)
    expected = "the overflow, detected and counted exactly"
    report("broker's queue full", expected, trial, result, told_missing=count)
    assert result.count.lost > ROOM
    assert count == result.count.lost
    assert (result.count.repeated, result.count.stray, result.two_copies) == (0, 0, [])


def missing(trial: Trial, expected: int) -> int:
    """How many numbers the reader of `mid` reports as missing, once these are `expected`."""
    view = MqttBroker(Target(trial.broker("cloud"))).view()
    (numbers,) = [it for client, it in view.taken.items() if f"-{trial.job('count')}-" in client]
    holes = sum(sum(epochs.values()) for epochs in numbers.missing.values())
    return holes if holes == expected else 0
