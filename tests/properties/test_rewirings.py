"""Compositions with two outputs, turned into one another at random while records flow: whatever is
rewired, each output gets each record once. Also where a change is cancelled at some call, or a
start is refused, and the change is made again, or rolled back and made again.

Chains of one to four jobs lead to the first output; a branch from any of their links leads to the
second. Jobs, sites and links are few, so that they are used again in other places.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from binders.memory import World
from speck.errors import EngineRefusedError, QueuesError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.memory_fog import memory_service, site_body
from tests.turns import Turns
from tests.unit.deploy.execution.test_executor import broker, engine

SITES = ("edge-a", "edge-b", "cloud")
PLACES = [(site, topic) for site in SITES for topic in "xy"]
IN, OUT, OUT2 = ("edge-a", "in"), ("cloud", "o1"), ("cloud", "o2")
CALLS = {"stop", "submit", "cancel", "save_progress", "reserve", "release", "forget", "status"}
FIRST_SEEDS = 6  # of each kind of trouble in one test
REPAIRED = [
    ("cancel", 65, True),
    ("cancel", 107, True),
    ("cancel", 134, False),
    ("cancel", 205, True),
    ("cancel", 329, True),
    ("cancel", 387, True),
    ("cancel", 2225, True),
    ("refuse", 10, True),
    ("refuse", 151, True),
    ("refuse", 161, True),
    ("refuse", 170, True),
    ("refuse", 203, True),
    ("refuse", 212, True),
    ("refuse", 229, False),
    ("refuse", 278, False),
    ("refuse", 292, True),
    ("refuse", 297, True),
    ("refuse", 305, True),
    ("refuse", 495, True),
    ("refuse", 508, True),
]
"""Seeds that once lost or repeated messages: a job began to send before those downstream of it
ran, or one of two jobs that follow a reader began and the other one did not."""
REFUSED = EngineRefusedError("cannot start it: no")


def wiring(dice: random.Random) -> JsonObject:
    """A composition at random."""
    names = dice.sample("ABCDE", dice.randint(1, 4))
    ends = [IN, *dice.sample(PLACES, len(names) - 1), OUT]
    jobs = [
        _job(dice, name, source, sink)
        for name, source, sink in zip(names, ends[:-1], ends[1:], strict=True)
    ]
    jobs.append(_job(dice, dice.choice("ST"), dice.choice(ends[1:]), OUT2))
    outputs = [
        {"site": site, "topic": topic, "client_id": f"out-{topic}"} for site, topic in (OUT, OUT2)
    ]
    inputs = [{"site": IN[0], "topic": IN[1]}]
    return {"name": "c", "jobs": jobs, "outputs": outputs, "inputs": inputs}


def _job(
    dice: random.Random, name: str, source: tuple[str, str], sink: tuple[str, str]
) -> JsonObject:
    return {
        "job_name": name,
        "site": dice.choice(SITES),
        "source_site": source[0],
        "source_topic": source[1],
        "sink_site": sink[0],
        "sink_topic": sink[1],
        "entry_class": "package.ExampleJob",
        "job_path": "test-1.jar",
    }


class Trial:
    """A service whose composition is rewired while every call brings in a record."""

    def __init__(self, service: Service, dice: random.Random, turns: Turns) -> None:
        self.service = service
        self.dice = dice
        self.turns = turns
        self.sent = 0
        self.calls = 0
        self.cancel_at = 0

    def send(self, count: int) -> None:
        payloads = [b"%d" % (self.sent + n) for n in range(count)]
        World.current().feed("tcp://edge-a.test:1883", IN[1], payloads, "sensor")
        self.sent += count

    def apply(self, composition: JsonObject) -> str:
        """The state in which it ends. A reader that never began may have a queue to be dropped, at
        once or when its session is released: then with consent."""
        request = ApplyRequest(wait_s=30, force=True)
        description = composition_from_data(composition)
        try:
            body = self.service.compositions.apply(description, request).body
        except QueuesError:
            request = replace(request, drop_queues=True)
            body = self.service.compositions.apply(description, request).body
        change = self.service.changes.get(body["change"]) if body["change"] else {"state": "done"}
        if "--drop-queues" in (change.get("error") or ""):
            return self.apply(composition)
        return str(change["state"])

    def apply_with(self, trouble: str, composition: JsonObject) -> None:
        """Apply; the outcome is left open."""
        if trouble == "cancel":
            self.cancel_at = self.calls + self.dice.randint(1, 40)
        else:
            engine(self.dice.choice(SITES)).refuse("submit", self.dice.randint(1, 2), REFUSED)
        self.apply(composition)
        self.cancel_at = 0
        for site in SITES:
            engine(site).forgive()
        self.send(3)

    def called(self, kind: str, subject: str) -> None:
        if kind in CALLS:
            self.send(1)
        self.calls += 1
        if self.cancel_at and self.calls >= self.cancel_at:
            self.cancel_at = 0
            for each in self.service.changes.all_under_way():
                if each.execution is not None:
                    each.execution.cancel()
        self.turns.pass_on()

    def listen(self) -> None:
        for site in SITES:
            engine(site).before = broker(site).before = self.called

    def wrong(self) -> dict[str, tuple[list[int], list[int]]]:
        """The lost and repeated messages, by output."""
        for site in SITES:
            engine(site).before = broker(site).before = None
        World.current().pump()
        faults = {}
        for site, topic in (OUT, OUT2):
            payloads = Counter(int(payload) for payload in broker(site).take(f"out-{topic}"))
            lost = [n for n in range(self.sent) if n not in payloads]
            twice = sorted(n for n, count in payloads.items() if count > 1)
            if lost or twice:
                faults[topic] = (lost, twice)
        return faults


def rewire(folder: Path, seed: int, trouble: str, *, back: bool) -> dict[str, object]:
    """The faults after two changes of a composition."""
    dice = random.Random(seed)
    folder.mkdir()
    turns, sites = Turns(seed), [site_body(site) for site in SITES]
    with memory_service(folder, sites, clock=turns, scheduler=turns) as service:
        trial = Trial(service, dice, turns)
        wirings = [wiring(dice) for _ in range(3)]
        for number, composition in enumerate(wirings):
            if trouble and number:
                trial.apply_with(trouble, composition)
                if back:
                    assert trial.apply(wirings[number - 1]) == "done"
            assert trial.apply(composition) == "done"
            trial.send(4)
            trial.listen()
        return dict(trial.wrong())


@pytest.mark.parametrize("first", range(0, 60, FIRST_SEEDS))
def test_every_record_comes_out_once_whatever_is_rewired(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + FIRST_SEEDS):
        assert rewire(tmp_path / str(seed), seed, "", back=False) == {}, seed


@pytest.mark.parametrize("first", range(0, 24, FIRST_SEEDS))
@pytest.mark.parametrize("trouble", ["cancel", "refuse"])
def test_every_record_comes_out_once_if_a_change_is_cut_off_and_made_again(
    tmp_path: Path, trouble: str, first: int
) -> None:
    for seed in range(first, first + FIRST_SEEDS):
        assert rewire(tmp_path / str(seed), seed, trouble, back=False) == {}, seed


@pytest.mark.parametrize("first", range(0, 24, FIRST_SEEDS))
@pytest.mark.parametrize("trouble", ["cancel", "refuse"])
def test_every_record_comes_out_once_if_a_change_is_cut_off_and_rolled_back(
    tmp_path: Path, trouble: str, first: int
) -> None:
    for seed in range(first, first + FIRST_SEEDS):
        assert rewire(tmp_path / str(seed), seed, trouble, back=True) == {}, seed


@pytest.mark.parametrize(("trouble", "seed", "back"), REPAIRED)
def test_every_record_comes_out_once_where_it_once_did_not(
    tmp_path: Path, trouble: str, seed: int, *, back: bool
) -> None:
    assert rewire(tmp_path / "trial", seed, trouble, back=back) == {}
