"""The wall clock is set back and forth by hours and years while the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from binders.memory import World
from speck.clock import SystemClock
from speck.config import Config
from speck.deploy.operations import Patience
from speck.model.site import AgentReport
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.site_schema import site_from_data
from tests.memory_fog import FAST, make_jar, site_body
from tests.service_helpers import LIMIT_S, composition, engine, job
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

HOURS = [0, -5, 9, -30, 24 * 365, -24 * 365 * 2, 1]
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class JumpingClock(SystemClock):
    """A wall clock that stands where a test puts it; other time goes on."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def jump(self, hours: float) -> None:
        self.at += timedelta(hours=hours)


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def service(tmp_path: Path, clock: JumpingClock) -> Iterator[Service]:
    World.reset(slots=16)
    make_jar(tmp_path / "jars")
    config = Config(home=tmp_path / "home", jar_folders=(tmp_path / "jars",), simulated=True)
    service = Service(config, clock, FAST, Patience())
    for name in ("edge-a", "cloud"):
        service.sites.add(site_from_data(site_body(name)))
    yield service
    service.close()


def apply(service: Service, note: int, **request: object) -> str:
    """The change of a revision that is done."""
    options = ApplyRequest(wait_s=LIMIT_S, **request)  # type: ignore[arg-type]
    answer = service.compositions.apply(composition(body("A", args=[str(note)])), options)
    assert answer.state == "done"
    return str(answer.change)


def test_changes_stay_in_the_order_in_which_they_were_made(
    service: Service, clock: JumpingClock
) -> None:
    changes = []
    for note, hours in enumerate(HOURS):
        clock.jump(hours)
        changes.append(apply(service, note))
    assert changes == sorted(set(changes))
    assert [head.id for head in service.changes.all()] == changes[::-1]
    service.close()
    clock.jump(-1000)
    again = Service(service.config, clock, FAST, Patience())
    try:
        changes.append(apply(again, 99))
        assert changes == sorted(set(changes)), "over a new start too"
    finally:
        again.close()


def test_the_newest_changes_are_kept_not_those_of_the_latest_hour(
    service: Service, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.store.retention.CHANGES_OF_A_SCOPE", 2)
    changes = []
    for note in range(4):
        changes.append(apply(service, note))
        clock.jump(-10)
    assert [head.id for head in service.changes.all()] == [changes[3], changes[2]]


def test_events_stay_in_the_order_in_which_they_happened(
    service: Service, clock: JumpingClock
) -> None:
    newest = 0
    for note, hours in enumerate(HOURS):
        clock.jump(hours)
        change = apply(service, note)
        new = list(service.records.events.after(newest))
        assert change in {event.change for event in new}
        assert [event.id for event in new] == list(range(newest + 1, newest + 1 + len(new)))
        newest = new[-1].id


@pytest.mark.parametrize("hours", [-23, 23])
def test_an_idempotency_key_is_known_though_the_clock_was_set(
    service: Service, clock: JumpingClock, hours: float
) -> None:
    first = apply(service, 1, idempotency_key="k")
    clock.jump(hours)
    assert apply(service, 1, idempotency_key="k") == first


def test_answers_from_a_wrong_future_are_dropped_too(service: Service, clock: JumpingClock) -> None:
    clock.jump(24 * 365)
    apply(service, 1, idempotency_key="from the future")
    clock.jump(-24 * 365)
    for note in range(2):
        apply(service, note, idempotency_key=f"k-{note}")
        clock.jump(25)
    apply(service, 3, idempotency_key="last")
    assert len(list(service.records.store.scan("idem/"))) == 1


def test_a_change_under_way_waits_by_other_time(service: Service, clock: JumpingClock) -> None:
    """No limit is reached, and none is put off, by the wall clock."""
    engine("edge-a").hold_starts = True
    change = service.compositions.apply(composition(body("A")), ApplyRequest()).change
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    for hours in HOURS:
        clock.jump(hours)
        looks = engine("edge-a").count("view")
        wait_for(lambda before=looks: engine("edge-a").count("view") > before + 1)  # type: ignore[misc]
        assert service.changes.get(change).state == "running"
    engine("edge-a").let_go()
    wait_for(lambda: service.changes.get(change).state == "done")
    assert engine("edge-a").count("submit") == 1


def test_a_blocked_change_goes_on(service: Service, clock: JumpingClock) -> None:
    engine("edge-a").unreachable = True
    change = service.compositions.apply(composition(body("A")), ApplyRequest()).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    clock.jump(-100)
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")


def test_tokens_and_heartbeats_know_no_hour(service: Service, clock: JumpingClock) -> None:
    secret = service.tokens.add("root", "admin")
    for hours in HOURS:
        clock.jump(hours)
        assert service.tokens.verify(secret) is not None
        beat = service.agents.heartbeat("edge-a", AgentReport(cores=1))
        assert beat.startswith(clock.at.strftime("%Y-%m-%dT%H"))


def test_jobs_alone_too(service: Service, clock: JumpingClock) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    clock.jump(-50)
    service.jobs.put("A", job("A", "cloud"), LIMIT_S)
    clock.jump(100)
    service.jobs.delete("A", LIMIT_S)
    ids = [head.id for head in service.changes.all()]
    assert ids == sorted(ids, reverse=True) and len(ids) == 3
