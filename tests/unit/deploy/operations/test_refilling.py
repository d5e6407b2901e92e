"""Checkpoints on request while jobs that have just started fill their links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from binders.memory import World
from speck.deploy.operations.refilling import AT_ONCE, NEIGHBOURS, Refills, find_neighbours
from speck.deploy.scheduler import ThreadScheduler
from speck.errors import EngineRefusedError
from speck.model.values import JsonObject
from speck.service import Service
from tests.memory_fog import HASTY, memory_service, site_body
from tests.service_helpers import DONE, composition, engine
from tests.service_helpers import job_body as job
from tests.waiting import wait_for
from tests.watching import Time

LONG_S = 1000.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Nothing ends by itself in the time that a test takes."""
    patience = replace(HASTY, refill_s=LONG_S)
    with memory_service(tmp_path, [site_body("edge-a")], patience=patience) as opened:
        yield opened


def apply(service: Service, *jobs: JsonObject) -> None:
    body = service.compositions.apply(composition(*jobs), DONE)
    assert service.changes.get(body.change).state == "done"


def list_checkpoint_requests() -> list[str]:
    return [subject for kind, subject in engine("edge-a").calls if kind == "checkpoint"]


def checked() -> int:
    return engine("edge-a").count("checkpoint_progress")


def complete_a_checkpoint() -> None:
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1"], "sensor")
    World.current().pump()


def test_the_next_one_is_asked_for_once_the_last_one_is_complete(service: Service) -> None:
    apply(service, job("A", delivery="exactly_once"))
    wait_for(lambda: len(list_checkpoint_requests()) == 1)
    before = checked()
    wait_for(lambda: checked() > before + 2)
    assert len(list_checkpoint_requests()) == 1
    complete_a_checkpoint()
    wait_for(lambda: len(list_checkpoint_requests()) == 2)


def test_what_publishes_at_once_is_not_asked(service: Service) -> None:
    apply(service, job("A", delivery="at_least_once"), job("B", delivery="exactly_once"))
    wait_for(lambda: len(list_checkpoint_requests()) == 1)
    (only,) = list_checkpoint_requests()
    assert only == service.records.inventory("c").jobs["B"].engine_job_id


def test_one_that_has_ended_is_asked_no_more(service: Service) -> None:
    apply(service, job("A", delivery="exactly_once"))
    wait_for(lambda: len(list_checkpoint_requests()) == 1)
    engine("edge-a").forget_jobs()
    before = checked()
    wait_for(lambda: not service.executions.refills._engines)
    assert checked() <= before + 2


def test_a_refusal_ends_it_and_harms_nothing(service: Service) -> None:
    engine("edge-a").refuse("checkpoint", 1, EngineRefusedError("cannot take a checkpoint"))
    apply(service, job("A", delivery="exactly_once"))
    wait_for(lambda: not service.executions.refills._engines)
    assert len(list_checkpoint_requests()) == 1
    assert len(engine("edge-a").running()) == 1


def test_a_site_with_many_starts_is_asked_for_some(service: Service) -> None:
    names = [f"J{number}" for number in range(AT_ONCE + 4)]
    apply(service, *(job(name, delivery="exactly_once") for name in names))
    wait_for(lambda: len(list_checkpoint_requests()) == AT_ONCE)
    before = checked()
    wait_for(lambda: checked() > before + 2 * AT_ONCE)
    assert len(set(list_checkpoint_requests())) == AT_ONCE


def test_one_that_changes_is_asked_until_it_stops_and_its_neighbours_too(service: Service) -> None:
    jobs = [
        job("A", delivery="exactly_once"),
        job("B", delivery="exactly_once", source_topic="A-out"),
        job("far", delivery="exactly_once"),
    ]
    apply(service, *jobs)
    wait_for(lambda: len(list_checkpoint_requests()) == 3)
    old = service.records.inventory("c").jobs
    complete_a_checkpoint()
    wait_for(lambda: len(list_checkpoint_requests()) > 3)
    service.executions.refills._engines.clear()
    asked = len(list_checkpoint_requests())

    apply(service, {**jobs[0], "args": ["--new"]}, *jobs[1:])
    new = service.records.inventory("c").jobs["A"].engine_job_id
    wait_for(lambda: new in list_checkpoint_requests()[asked:])
    assert old["B"].engine_job_id in list_checkpoint_requests()[asked:]
    assert old["far"].engine_job_id not in list_checkpoint_requests()[asked:]
    edge_a = old["A"].job.engine
    assert old["A"].engine_job_id not in service.executions.refills._engines[edge_a]


def test_the_nearest_come_first_and_few_are_asked(service: Service) -> None:
    names = [f"J{n:02d}" for n in range(2 * NEIGHBOURS)]
    chain = [
        job(name, source_topic=f"t-{n}", sink_topic=f"t-{n + 1}") for n, name in enumerate(names)
    ]
    apply(service, *chain)
    running = service.records.inventory("c").jobs.values()
    near = [each.job.job_name for each in find_neighbours(["J05"], running)]
    assert near[0] == "J05"
    assert set(near[1:3]) == {"J04", "J06"}
    assert len(near) == NEIGHBOURS


class HandScheduler(ThreadScheduler):
    """Starts nothing by itself; when a lock has been released, `on_release` is called."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []
        self.on_release: Callable[[], None] = lambda: None

    def start(self, work: Callable[[], None], name: str) -> None:
        self.works.append(work)

    def lock(self) -> AbstractContextManager[Any]:
        return ReportingLock(self)


@dataclass
class ReportingLock:
    scheduler: HandScheduler

    def __enter__(self) -> None:
        """Nobody else runs."""

    def __exit__(self, *error: object) -> None:
        self.scheduler.on_release()


def test_a_thread_that_fails_after_its_last_request_takes_no_others_away(service: Service) -> None:
    """The engine has others by then, with a thread of their own."""
    apply(service, job("A", delivery="exactly_once"))
    incarnation = service.records.inventory("c").jobs["A"]
    turns, clock = HandScheduler(), Time()
    refills = Refills(service.connections, clock, 1.0, turns)
    refills.begin(incarnation)
    clock.passed += 2

    def begin_others_and_fail() -> None:
        turns.on_release = lambda: None
        refills.begin(incarnation)
        raise MemoryError

    turns.on_release = begin_others_and_fail
    first = turns.works.pop()
    with pytest.raises(MemoryError):
        first()
    clock.passed += 2
    second = turns.works.pop()
    second()
    assert not refills._engines
