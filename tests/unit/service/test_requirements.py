"""Requirements watched in a service: one event when missed, and one when met again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from speck.clock import SystemClock
from speck.metrics.rates import compute_job_rates
from speck.model.incarnation import Incarnation
from speck.model.job_rates import JobRates, TaskRates
from speck.monitor.requirements import Verdict
from speck.monitor.requirements_watch import AGREEING_POLLS, Requirements
from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, composition
from tests.unit.service.test_placements import CLEAN, ENDS, MERGE

TASK = TaskRates(**dict.fromkeys(each.name for each in fields(TaskRates)))


class Stopwatch(SystemClock):
    """Goes on when a test says so."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


class Watched:
    """Requirements over a service, with figures that a test gives."""

    def __init__(self, service: Service):
        self.service, self.clock = service, Stopwatch()
        self.rates: dict[str, JobRates] = {}
        self.requirements = Requirements(service.records, self.clock, self.measured)
        service.composition_views._requirements = self.requirements
        self.says("clean", in_rate=100.0)
        self.says("merge", in_rate=100.0)

    def measured(self, deployed: Incarnation) -> JobRates:
        return self.rates[deployed.job.job_name]

    def says(self, name: str, **more: Any) -> None:
        quiet = {"in_rate": 100.0, "busy": 0.1, "back_pressured": 0.0, "lag": 0}
        rates = {**quiet, **more}
        tasks = (replace(TASK, busy=rates["busy"]),)
        self.rates[name] = replace(compute_job_rates([]), **{"tasks": tasks, **rates})

    def poll(self, times: int = AGREEING_POLLS, every_s: float = 5.0) -> None:
        for _ in range(times):
            self.clock.at += every_s
            self.requirements.poll()

    def events(self) -> list[str]:
        events = self.service.records.events.after()
        return [event.message for event in events if event.kind == "requirement"]

    def shown(self) -> tuple[Verdict, ...]:
        return self.service.composition_views.get("c").requirements


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with memory_service(tmp_path, map(site_body, ("edge-a", "cloud"))) as service:
        needs = {"requirements": {"min_rate": 200.0, "max_latency_ms": 100.0}}
        service.compositions.apply(composition(CLEAN, MERGE, **ENDS, **needs), DONE)
        yield Watched(service)


def test_nothing_is_said_before_it_was_looked_at(watched: Watched) -> None:
    assert [(r.name, r.measured, r.ok) for r in watched.shown()] == [
        ("max_latency_ms", None, None),
        ("min_rate", None, None),
    ]


def test_what_is_not_kept_is_told_once_and_again_when_it_is_kept(watched: Watched) -> None:
    watched.says("clean", busy=0.99)
    watched.poll(AGREEING_POLLS - 1)
    assert watched.events() == []
    assert watched.shown()[1] == Verdict(
        name="min_rate",
        wanted=200.0,
        measured=100.0,
        ok=False,
        why="clean cannot take more, and more is offered",
    )
    watched.poll(10)
    assert watched.events() == [
        "c does not keep min_rate 200: 100 was measured;"
        " clean cannot take more, and more is offered"
    ]
    assert watched.requirements.broken("c") == ["min_rate"]
    again = Requirements(watched.service.records, watched.clock, watched.measured)
    assert again.broken("c") == ["min_rate"]  # a restart tells nothing twice
    watched.says("clean", in_rate=250.0)
    watched.poll()
    assert watched.events()[1:] == ["c keeps min_rate 200 again: 250 was measured"]
    assert watched.requirements.broken("c") == []


def test_what_is_not_known_ends_no_episode(watched: Watched) -> None:
    """The site is away for a minute: nothing is known, so nothing is kept again."""
    watched.says("clean", busy=0.99)
    watched.poll()
    watched.says("clean", in_rate=None, busy=None, back_pressured=None, lag=None)
    watched.poll(12)
    assert len(watched.events()) == 1
    assert watched.requirements.broken("c") == ["min_rate"]
    watched.says("clean", in_rate=90.0)
    watched.poll()
    assert watched.events()[1:] == [
        "c is not seen to miss min_rate 200 any more: 90 was measured; no more is offered"
    ]


def test_the_work_of_all_subtasks_counts(watched: Watched) -> None:
    """Four subtasks, each busy for half of its time with a quarter of 100 records: 20 ms each."""
    watched.says("clean", busy=0.5, tasks=(replace(TASK, busy=0.5),) * 4)
    watched.poll()
    assert watched.shown()[0].measured == pytest.approx(20.0 + 1.0)


def test_a_moment_is_no_episode(watched: Watched) -> None:
    for busy in (0.99, 0.99, 0.1) * 5:
        watched.says("clean", busy=busy)
        watched.poll(1)
    assert watched.events() == []


def test_what_waits_for_a_checkpoint_only_is_no_latency(watched: Watched) -> None:
    """Taken numbers are told every 10 s: in between, up to 1000 messages seem to wait."""
    for second in range(120):
        watched.says("merge", lag=0 if second % 10 == 0 else 100 * (second % 10))
        watched.poll(1, 1.0)
    assert watched.shown()[0].ok is True
    assert watched.events() == []


def test_what_stands_for_a_minute_does_wait(watched: Watched) -> None:
    for second in range(70):
        watched.says("merge", lag=100 + second)
        watched.poll(1, 1.0)
        if second < 60:
            assert watched.shown()[0].ok is not False
    assert watched.shown()[0].measured == pytest.approx(1 + 1 + 1090.0, abs=20)
    assert "c does not keep max_latency_ms 100" in watched.events()[0]


def test_a_requirement_that_is_dropped_or_gone_is_told_and_forgotten(watched: Watched) -> None:
    watched.says("clean", busy=0.99)
    watched.poll()
    watched.service.compositions.apply(composition(CLEAN, MERGE, **ENDS), DONE)
    watched.poll(1)
    assert watched.events()[1:] == ["c does not require min_rate any more"]
    assert watched.shown() == ()
