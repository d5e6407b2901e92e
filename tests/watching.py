"""A watch of memory sites whose time and polls are the test's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from speck.clock import SystemClock
from speck.model.measurement import LinkMeasure
from speck.model.values import JsonObject
from speck.monitor.watch import Watch
from speck.service import Service
from speck.service.status import JobView
from tests.service_helpers import DONE, composition, look_anew, poll_engines
from tests.waiting import wait_for


class Time(SystemClock):
    """The machine's time, and as much more as the test has let pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.passed)

    def now_ms(self) -> int:
        return int(self.now().timestamp() * 1000)


@dataclass
class Watched:
    """A service, a watch whose polls the test starts, and the repairs that it requested."""

    service: Service
    time: Time
    repairs: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    links: dict[str, LinkMeasure] = field(default_factory=dict)
    """What engines report of connectors, by engine job id."""
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(
            self.service.records,
            self.service.connections,
            self.service.changes,
            self.service.polls,
            self.service.board,
            self.service.states.errors,
            self.time,
            self,
            0,
            lambda incarnation: self.links.get(incarnation.engine_job_id),
            resends=self.service.executions.resends,
        )

    def repair(self, scope: str, leave: frozenset[str]) -> None:
        """Only record the jobs to repair."""
        self.repairs.append((scope, leave))

    def look(self, after: float = 5.0) -> None:
        """Look, and wait until its repairs are over."""
        self.time.passed += after
        look_anew(self.service)
        self.watch.poll()
        wait_for(lambda: not self.watch.repairs.scopes)

    def events(self, kind: str) -> list[str]:
        return [e.message for e in self.service.records.events.after() if e.kind == kind]

    def job(self, name: str) -> JobView:
        poll_engines(self.service)
        return self.service.jobs.get(name)


def deploy(watched: Watched, *jobs: JsonObject, **more: str) -> None:
    watched.service.compositions.apply(composition(*jobs, **more), DONE)
    watched.look()
    watched.look()


def incarnation(watched: Watched, name: str, scope: str = "c") -> str:
    deployed = watched.service.records.incarnations.get(scope, name)
    assert deployed is not None
    return deployed.engine_job_id
