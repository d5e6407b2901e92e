"""Changes over a stop of the service: they go on, or stay ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from speck.errors import ConflictError, NotFoundError
from speck.model.change import ChangeReport
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import DONE, LIMIT_S, composition, engine, job, reopened
from tests.service_helpers import job_body as body
from tests.waiting import wait_for

A, B = body("A"), body("B", "cloud")
SOON = ApplyRequest()


@contextmanager
def restarted(service: Service) -> Iterator[Service]:
    """The service after an orderly stop and a new start."""
    again = reopened(service)
    try:
        yield again
    finally:
        again.close()


def held(service: Service) -> str:
    """A change in whose middle A is being started."""
    engine("edge-a").hold_starts = True
    change = service.compositions.apply(composition(A, B), SOON).change
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    return str(change)


def goes_on(service: Service, change: str) -> bool:
    """Whether it has been planned again."""
    messages = [e.message for e in service.records.events.after() if e.change == change]
    return any(" goes on with " in message for message in messages)


def over(service: Service, change: str) -> ChangeReport:
    """The change once it is over."""
    wait_for(lambda: not service.changes.all_under_way())
    return service.changes.get(change)


def waiting_for_calm(service: Service, over: threading.Event) -> threading.Thread:
    waits = threading.Thread(target=service.changes.await_calm, args=(over,))
    waits.start()
    return waits


def test_who_gives_way_waits_until_the_change_is_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.deploy.changes.registry.GIVE_WAY_S", LIMIT_S)
    assert not service.changes.await_calm(threading.Event())  # there is no change
    held(service)
    waits = waiting_for_calm(service, threading.Event())
    waits.join(0.3)
    assert waits.is_alive()
    engine("edge-a").let_go()
    waits.join(LIMIT_S / 2)
    assert not waits.is_alive()


def test_nobody_gives_way_to_a_change_for_long_nor_while_the_service_stops(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(service)
    (running,) = service.changes.all_under_way()
    age_s = service.clock.monotonic() - running.begun
    monkeypatch.setattr("speck.deploy.changes.registry.GIVE_WAY_S", age_s + 1.0)
    assert service.changes.await_calm(threading.Event())
    monkeypatch.setattr("speck.deploy.changes.registry.GIVE_WAY_S", LIMIT_S)
    over = threading.Event()
    waits = waiting_for_calm(service, over)
    over.set()
    waits.join(LIMIT_S / 2)
    assert not waits.is_alive()
    assert service.changes.all_under_way()
    engine("edge-a").let_go()


def test_a_change_goes_on_under_its_id_after_a_stop(service: Service) -> None:
    change = held(service)
    with restarted(service) as again:
        assert again.changes.get(change).state == "running"
        engine("edge-a").let_go()
        outcome = over(again, change)
        assert outcome.state == "done"
        assert again.composition_views.all()[0].deployed_revision == 1
        assert len(engine("edge-a").jobs) == 1
        cut = [o for o in outcome.operations if o.state == "cancelled"]
        assert {o.kind for o in cut} == {"start"}
        assert cut[0].error == "the service stopped; planned anew"
        ids = [o.id for o in outcome.operations]
        assert ids == sorted(set(ids)), "the new steps are numbered behind the old ones"
        messages = [e.message for e in again.records.events.after() if e.change == change]
        assert "change of c pauses: the service stops" in messages
        assert "change of c was cut short: the service stopped" in messages


def test_while_it_is_planned_anew_the_composition_is_busy(service: Service) -> None:
    held(service)
    with restarted(service) as again:
        with pytest.raises(ConflictError, match="is under way"):
            again.compositions.apply(composition(A), SOON)
        engine("edge-a").let_go()


def test_a_change_goes_on_over_two_stops(service: Service) -> None:
    change = held(service)
    with restarted(service) as again:
        wait_for(lambda: goes_on(again, change))
        with restarted(again) as third:
            engine("edge-a").let_go()
            outcome = over(third, change)
            assert outcome.state == "done"
            ids = [o.id for o in outcome.operations]
            assert ids == sorted(set(ids))
            assert len(engine("edge-a").jobs) == 1


def test_what_was_asked_to_end_stays_ended(service: Service) -> None:
    change = held(service)
    service.records.write({f"ending/{change}": {"at": "now"}})
    with restarted(service) as again:
        outcome = again.changes.get(change)
        assert outcome.state == "cancelled"
        assert "start" in {o.kind for o in outcome.operations if o.state == "cancelled"}
        assert again.composition_views.all()[0].deployed_revision is None
        assert not list(again.records.store.scan("ending/"))
    engine("edge-a").let_go()


def test_a_blocked_change_goes_on_and_blocks_again(service: Service) -> None:
    engine("edge-a").unreachable = True
    change = service.compositions.apply(composition(A, B), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    with restarted(service) as again:
        wait_for(lambda: again.changes.get(change).state == "blocked")
        engine("edge-a").unreachable = False
        assert over(again, change).state == "done"


def test_what_a_young_change_begins_is_told_while_it_goes_on(service: Service) -> None:
    change = held(service)
    (job_id,) = engine("edge-a").jobs
    assert job_id in service.changes.list_starting_jobs(LIMIT_S)
    assert len(service.changes.list_starting_jobs(LIMIT_S)) == 2
    assert service.changes.list_starting_jobs(0.0) == set()
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    assert service.changes.list_starting_jobs(LIMIT_S) == set()
    engine("edge-a").unreachable = False
    engine("edge-a").let_go()
    assert over(service, change).state == "done"
    assert service.changes.list_starting_jobs(LIMIT_S) == set()


def test_a_removal_goes_on(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("edge-a").unreachable = True
    change = service.compositions.delete("c", 0).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    with restarted(service) as again:
        wait_for(lambda: again.changes.get(change).state == "blocked")
        engine("edge-a").unreachable = False
        assert over(again, change).state == "done"
        with pytest.raises(NotFoundError):
            again.composition_views.get("c")
        again.jobs.post(job("A"), 20)


def test_a_job_alone_goes_on_being_added_and_removed(service: Service) -> None:
    engine("edge-a").hold_starts = True
    change = service.jobs.post(job("A"), 0).under_way.id
    wait_for(lambda: engine("edge-a").count("submit") == 1)
    with restarted(service) as again:
        engine("edge-a").let_go()
        assert over(again, change).state == "done"
        engine("edge-a").unreachable = True
        change = again.jobs.delete("A", 0).under_way.id
        wait_for(lambda: again.changes.get(change).state == "blocked")
        with restarted(again) as third:
            engine("edge-a").unreachable = False
            assert over(third, change).state == "done"
            with pytest.raises(NotFoundError):
                third.jobs.get("A")


def test_a_change_that_cannot_be_planned_any_more_says_why(service: Service) -> None:
    change = held(service)
    service.config.artifacts.rename(service.config.home / "aside")
    (service.config.jar_folders[0] / "test-1.jar").unlink()
    with restarted(service) as again:
        outcome = over(again, change)
        assert outcome.state == "failed"
        assert outcome.error.startswith("cannot accept composition c: jobs[0].job_path")
    engine("edge-a").let_go()
