"""A change may be cancelled after any of its outcomes: going on then loses nothing.

Some of these changes drop a queue, and so need consent: of a reader that was never started, since
its start was cancelled, or that was stopped and is not wanted any more, and of the reader outside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from binders.memory import World
from speck.deploy.execution.journal import Journal
from speck.deploy.operations import Done
from speck.errors import QueuesError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.crash_scenarios import Scenario, scenarios
from tests.memory_fog import service_in_turns, site_body
from tests.service_helpers import broker, engine, job_body
from tests.turns import Turns

SITES = ("edge-a", "edge-b", "cloud")
WHATEVER = ApplyRequest(wait_s=20, force=True)


def make_job(name: str, site: str, source: str, sink: str, **more: Any) -> JsonObject:
    return job_body(name, site, source_topic=source, sink_topic=sink, **more)


ALL = scenarios(make_job)


def feed(first: int, last: int) -> None:
    numbers = [str(n).encode() for n in range(first, last + 1)]
    World.current().feed("tcp://edge-a.test:1883", "in", numbers, "sensor")
    World.current().pump()


@contextmanager
def cancelling_after(service: Service, outcomes: int) -> Iterator[None]:
    """Cancel changes once so many operations are done: those that they release do not begin; with
    0, once the first ones have begun."""
    record_success, advance, done = Journal.record_success, Journal.advance, 0

    def cancel_in_time() -> None:
        if done >= outcomes:
            for running in service.changes.all_under_way():
                if running.execution is not None:
                    running.execution.cancel()

    def count(journal: Journal, step_id: int, outcome: Done) -> None:
        nonlocal done
        record_success(journal, step_id, outcome)
        done += 1
        cancel_in_time()

    def begin(journal: Journal, *steps: Any) -> list[Done]:
        outcomes = advance(journal, *steps)
        cancel_in_time()
        return outcomes

    with (
        patch.object(Journal, "record_success", count),
        patch.object(Journal, "advance", begin),
    ):
        yield


def ask(service: Service, turns: Turns, desired: JsonObject | None) -> str:
    """How the change to it has ended, with consent to drop queues if it needs that."""
    try:
        _begin(service, desired, drop_queues=False)
    except QueuesError:
        _begin(service, desired, drop_queues=True)
    turns.poll(lambda: not service.changes.all_under_way())
    return str(service.changes.all()[0].state)


def _begin(service: Service, desired: JsonObject | None, *, drop_queues: bool) -> None:
    if desired is None:
        service.compositions.delete("c", 20, drop_queues=drop_queues)
    else:
        request = replace(WHATEVER, drop_queues=drop_queues)
        service.compositions.apply(composition_from_data(desired), request)


def goes_well(scenario: Scenario, outcomes: int, *, back: bool) -> bool:
    """Whether the change was over before so many outcomes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        service_in_turns(Path(folder), map(site_body, SITES), seed=outcomes, at_writes=True) as (
            service,
            turns,
        ),
    ):
        assert ask(service, turns, scenario.first) == "done"
        feed(1, 10)
        with cancelling_after(service, outcomes):
            ended = ask(service, turns, scenario.then)
        assert ended in ("done", "cancelled")
        is_gone = ended == "done" and scenario.then is None
        fed = 10
        if scenario.then is not None:  # what comes while all is being removed is abandoned
            feed(11, fed := 20)
        desired = scenario.first if back and not is_gone else scenario.then
        if not is_gone:
            assert ask(service, turns, desired) == "done"
        if desired is not None:
            feed(fed + 1, fed := fed + 10)
            assert service.composition_views.plan("c").operations == ()
        end = broker("cloud")
        payloads = [message.payload for message in end.abandoned["checker"]]
        payloads += end.take("checker") if "checker" in end.sessions else []
        lost = set(range(1, fed + 1)) - {int(n) for n in payloads}
        assert not lost, (outcomes, lost)
        runs = [(i.submission.job_name, site) for site in SITES for i in engine(site).running()]
        jobs = desired["jobs"] if desired is not None else []
        assert sorted(runs) == sorted((job["job_name"], job["site"]) for job in jobs)
        assert not any(broker(site).thrown_out for site in SITES)
        return ended == "done"


def every(scenario: Scenario, *, back: bool) -> None:
    outcomes = 0
    while not goes_well(scenario, outcomes, back=back):
        outcomes += 1
    assert outcomes > 1


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_going_on_after_a_cancelled_change_loses_nothing(scenario: Scenario) -> None:
    every(scenario, back=False)


@pytest.mark.parametrize(
    "scenario",
    [
        *ALL[::3],
        *(pytest.param(each, marks=pytest.mark.long) for each in ALL if each not in ALL[::3]),
    ],
    ids=lambda scenario: scenario.name,
)
def test_going_back_after_a_cancelled_change_loses_nothing(scenario: Scenario) -> None:
    every(scenario, back=True)
