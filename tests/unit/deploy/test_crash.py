"""The service dies at every point of every kind of operation; a new one goes on.

Memory sites outlive the service. Death is this: from its moment on the dying service can write
nothing to its store and reaches no site; what it had asked for before goes on at the sites.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from binders.memory import World
from speck import failpoints
from speck.errors import EngineRefusedError, InvalidError, UnreachableError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from tests.crash_scenarios import IMPOSSIBLE, Crash, Scenario, crashes, one_of_each, scenarios
from tests.memory_fog import FAST, HASTY, MemoryKeeper, memory_service, site_body
from tests.service_helpers import DONE, LIMIT_S, broker, engine, job_body
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b", "cloud")
SOON = ApplyRequest()


class Death(BaseException):
    """Ends every thread that touches anything."""


def make_job(name: str, site: str, source: str, sink: str, **more: Any) -> JsonObject:
    return job_body(name, site, source_topic=source, sink_topic=sink, **more)


SCENARIOS = scenarios(make_job, apart=True)
ALL = list(crashes(SCENARIOS))
ONE_OF_EACH = one_of_each(SCENARIOS)


@dataclass
class Mortal:
    """A service that may die."""

    service: Service
    keeper: MemoryKeeper
    mark: str | None = None
    dead: threading.Event = field(default_factory=threading.Event)

    def arm(self, at: str) -> None:
        """From now on it dies at that point."""
        store = self.service.records.store
        write = store.write

        def guarded(batch: Any) -> None:
            self._refuse_the_dead()
            write(batch)

        store.write = guarded  # type: ignore[method-assign]
        for site in SITES:
            for place in (engine(site), broker(site)):
                place.before = lambda *_: self._refuse_the_dead()
        failpoints.arm(at, self._die)

    def _die(self, where: str) -> None:
        self.mark = where
        self.dead.set()
        raise Death

    def _refuse_the_dead(self) -> None:
        if self.dead.is_set():
            raise Death

    def buried(self) -> Service:
        """Wait until nothing of it moves any more; the service that is started then."""
        wait_for(self.dead.is_set)
        for running in self.service.changes.all_under_way():
            assert running.over.wait(LIMIT_S)
        with suppress(Death):
            self.service.close()
        for site in SITES:
            engine(site).before = broker(site).before = None
        return Service(self.service.config, bounds=FAST, patience=HASTY, keeper=self.keeper)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    keeper = MemoryKeeper()
    with memory_service(tmp_path, map(site_body, SITES), keeper=keeper) as service:
        yield Mortal(service, keeper)
        failpoints.disarm()


def feed(first: int, last: int) -> None:
    numbers = [str(n).encode() for n in range(first, last + 1)]
    World.current().feed("tcp://edge-a.test:1883", "in", numbers, "sensor")


def ask(service: Service, scenario: Scenario) -> None:
    """Ask for what the scenario turns into; who asks may die with the service."""
    with suppress(Death):
        if scenario.then is None:
            service.compositions.delete("c", 0, drop_queues=True)
        else:
            service.compositions.apply(composition_from_data(scenario.then), SOON)


def came_through(scenario: Scenario) -> set[int]:
    """The numbers that have come to the end of the chain."""
    World.current().pump()
    end = broker("cloud")
    payloads = [message.payload for message in end.abandoned["checker"]]  # released with its link
    return {
        int(n) for n in [*payloads, *(end.take("checker") if "checker" in end.sessions else [])]
    }


def is_as_wanted(service: Service, scenario: Scenario) -> None:
    """Exactly the desired jobs run, once each, and no operation is left."""
    jobs = [(job.submission.job_name, site) for site in SITES for job in engine(site).running()]
    assert sorted(jobs) == sorted(scenario.wanted.items())
    for site in SITES:
        ended = {job for kind, job in engine(site).calls if kind in ("stop", "cancel")}
        assert not ended & {job.id for job in engine(site).running()}, "a restored job was ended"
        assert not broker(site).thrown_out
    if scenario.then is None:
        assert service.composition_views.all() == []
        assert not any(broker(site).sessions for site in SITES)
        return
    assert service.composition_views.plan("c").operations == ()
    (head,) = service.composition_views.all()
    assert head.deployed_revision == head.revision


def lives_on(mortal: Mortal, scenario: Scenario, at: str) -> None:
    """Let the service die there, start a new one, and see all come right."""
    service = mortal.service
    service.compositions.apply(composition_from_data(scenario.first), DONE)
    feed(1, 10)
    mortal.arm(at)
    ask(service, scenario)
    again = mortal.buried()
    try:
        assert mortal.mark == at
        if scenario.then is not None:
            feed(11, 20)
            World.current().pump()  # jobs need no service for their work
        wait_for(lambda: not again.changes.all_under_way())
        newest = again.changes.all()[0]
        assert (newest.state, newest.error) == ("done", None)
        is_as_wanted(again, scenario)
        last = 10
        if scenario.then is not None:
            feed(21, last := 30)
        assert came_through(scenario) == set(range(1, last + 1))
    finally:
        again.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("death", ONE_OF_EACH, ids=str)
def test_a_service_that_died_goes_on(mortal: Mortal, death: Crash) -> None:
    lives_on(mortal, death.scenario, death.at)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("death", [d for d in ALL if d not in ONE_OF_EACH], ids=str)
def test_a_service_that_died_goes_on_in_every_scenario(mortal: Mortal, death: Crash) -> None:
    lives_on(mortal, death.scenario, death.at)


# -- a start whose answer was lost, and another revision then ------------------------------

WHOLE = SCENARIOS[1]
FENCE = Scenario("fence", WHOLE.first, WHOLE.then, ("fence",))


def lost_start(service: Service) -> None:
    """B is updated; nobody hears whether its start has arrived, and the change is given up."""
    error = UnreachableError("cannot reach edge-a: no answer in time")
    engine("edge-a").refuse("submit", 100_000, error)
    lost: JsonObject = {**FENCE.first}
    lost["jobs"] = [
        {**job, "parallelism": 3} if job["job_name"] == "B" else job for job in lost["jobs"]
    ]
    change = service.compositions.apply(composition_from_data(lost), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    engine("edge-a")._refusals.clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("point", failpoints.POINTS)
def test_a_service_that_died_while_it_settled_goes_on(mortal: Mortal, point: str) -> None:
    service = mortal.service
    service.compositions.apply(composition_from_data(FENCE.first), DONE)
    feed(1, 10)
    lost_start(service)
    mortal.arm(f"fence:{point}")
    ask(service, FENCE)
    again = mortal.buried()
    try:
        assert mortal.mark == f"fence:{point}"
        wait_for(lambda: not again.changes.all_under_way())
        assert again.changes.all()[0].state == "done"
        is_as_wanted(again, FENCE)
        feed(11, 20)
        assert came_through(FENCE) == set(range(1, 21))
    finally:
        again.close()


# -- a start that is refused, so that what ran before has to come back ----------------------

MOVE = next(scenario for scenario in SCENARIOS if scenario.name == "move")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("refused", [1, 2], ids=["refused-once", "refused-again"])
@pytest.mark.parametrize("point", failpoints.POINTS)
def test_a_service_that_died_on_the_way_back_goes_on(
    mortal: Mortal, point: str, refused: int
) -> None:
    service = mortal.service
    service.compositions.apply(composition_from_data(MOVE.first), DONE)
    feed(1, 10)
    engine("edge-b").refuse("submit", refused, EngineRefusedError("cannot start B: no"))
    mortal.arm(f"return:{point}")
    ask(service, MOVE)
    again = mortal.buried()
    try:
        assert mortal.mark == f"return:{point}"
        feed(11, 20)
        World.current().pump()
        wait_for(lambda: not again.changes.all_under_way())
        if refused == 1:
            assert again.changes.all()[0].state == "done"
            is_as_wanted(again, MOVE)
        else:
            assert again.changes.all()[0].state == "failed"
            runs = [job.submission.job_name for site in SITES for job in engine(site).running()]
            assert sorted(runs) == ["A", "B", "C"]
        feed(21, 30)
        assert came_through(MOVE) == set(range(1, 31))
        assert not any(broker(site).thrown_out for site in SITES)
    finally:
        again.close()


def test_enough_points_are_tried() -> None:
    tried = {(death.kind, death.point) for death in ONE_OF_EACH}
    assert not tried & IMPOSSIBLE.keys()
    assert len(tried) + 2 * len(failpoints.POINTS) >= 70


# -- the switch ---------------------------------------------------------------------------


def test_a_point_is_met_at_the_wanted_time_and_once() -> None:
    met: list[str] = []
    failpoints.arm("start:after-answer:2", met.append)
    for kind in ("stop", "start", "start", "start"):
        failpoints.hit(failpoints.AFTER_ANSWER, kind)
    assert met == ["start:after-answer"]
    assert not failpoints.is_armed()


def test_no_such_point_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"^cannot crash at 'start:now'"):
        failpoints.arm("start:now", print)


def test_a_service_that_has_died_once_lives(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    env = {"SPECK_CRASH_AT": "start:after-answer", "SPECK_CRASH_MARK": str(mark)}
    mark.write_text("start:after-answer")
    failpoints.arm_from(env)
    assert not failpoints.is_armed()
    mark.unlink()
    failpoints.arm_from(env)
    assert failpoints.is_armed()
    failpoints.disarm()


def test_nothing_is_wrapped_while_nothing_is_watched() -> None:
    binder = object()
    assert failpoints.wrap(binder) is binder
