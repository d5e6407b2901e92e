"""Forgetting by force: the store lets go of what engines and brokers keep."""

from __future__ import annotations

import pytest

from speck.errors import ConflictError, NotFoundError
from speck.model.change import ChangeState
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    everything,
    job,
    job_body,
    look_anew,
    reopened,
)
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


def test_without_force_it_names_what_would_be_left_and_changes_nothing(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    before = everything(service)
    (job_id,) = engine("edge-a").jobs
    with pytest.raises(ConflictError) as refused:
        service.forgetting.composition("c", force=False)
    assert str(refused.value).startswith(
        "cannot forget composition 'c' without --force (?force=true): it leaves behind engine job"
        f" {job_id} (A) at edge-a, engine job "
    )
    assert everything(service) == before


def test_a_composition_is_forgotten_without_a_call(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    jobs = {site: list(engine(site).jobs) for site in ("edge-a", "cloud")}
    calls = [len(engine(site).calls) + len(broker(site).calls) for site in jobs]
    record = service.forgetting.composition("c", force=True, by="root")
    assert [len(engine(site).calls) + len(broker(site).calls) for site in jobs] == calls
    assert not [key for key in everything(service) if key.startswith(("inv/", "ses/", "own/"))]
    assert [j.engine_job_id for j in record.left.engine_jobs] == [
        *jobs["edge-a"],
        *jobs["cloud"],
    ]
    assert {s.site for s in record.left.sessions} == {"edge-a", "cloud"}
    assert len(record.left.artifacts) == 1
    newest = list(service.records.events.after())[-1]
    assert newest.message.startswith("composition c was forgotten by root; left behind: engine")
    with pytest.raises(NotFoundError):
        service.composition_views.get("c")
    assert service.jobs.all() == []


def test_a_blocked_change_is_ended_first(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    engine("edge-a").unreachable = True
    answer = service.compositions.delete("c", 0)
    change = answer.change
    running = service.changes.under_way("c")
    assert running is not None
    wait_for(lambda: running.change.state is ChangeState.BLOCKED, "the change to be blocked")
    record = service.forgetting.composition("c", force=True)
    assert record.changes == (change,)
    ended = service.changes.get(change)
    assert ended.state == "cancelled"
    assert {o.state for o in ended.operations} <= {"done", "cancelled", "skipped"}
    assert service.changes.under_way("c") is None
    again = reopened(service)
    try:
        assert again.changes.under_way("c") is None
        assert again.jobs.all() == []
    finally:
        again.close()


def test_a_change_that_waits_for_an_engine_is_not_waited_for(service: Service) -> None:
    engine("edge-a").hold_starts = True
    service.compositions.apply(composition(A), ApplyRequest())
    wait_for(lambda: bool(engine("edge-a").jobs), "the start to be submitted")
    record = service.forgetting.composition("c", force=True)
    assert [j.engine_job_id for j in record.left.engine_jobs] == list(engine("edge-a").jobs)
    assert service.jobs.all() == []


def test_the_next_job_of_the_name_gets_another_id(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    (left,) = engine("edge-a").jobs
    record = service.forgetting.job("A", force=True)
    assert record.kind == "job"
    assert [j.engine_job_id for j in record.left.engine_jobs] == [left]
    look_anew(service)
    answer = service.jobs.post(job("A"), LIMIT_S)
    assert answer.job.attempt == 2
    assert answer.job.engine_job_id != left


def test_a_job_of_a_composition_stays_in_its_description(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    service.forgetting.job("A", force=True)
    shown = {each.job_name: each for each in service.jobs.all()}
    assert shown["A"].engine_job_id is None
    assert shown["B"].state == "running"
    service.watch.poll()
    assert engine("edge-a").count("submit") == 1, "nothing starts it by itself"
    answer = service.compositions.apply(composition(A, B), DONE)
    assert answer.plan.summary["add"] == 1


def test_a_lost_site_is_forgotten_with_its_jobs(service: Service) -> None:
    reads_cloud = job_body("R", "edge-a", source_site="cloud")
    service.compositions.apply(composition(A, B, reads_cloud), DONE)
    (at_cloud,) = engine("cloud").jobs
    engine("cloud").unreachable = broker("cloud").unreachable = True
    with pytest.raises(ConflictError, match=r"cannot forget site 'cloud' without --force"):
        service.forgetting.site("cloud", force=False)
    record = service.forgetting.site("cloud", force=True)
    assert [j.engine_job_id for j in record.left.engine_jobs] == [at_cloud]
    assert {s.client_id.rsplit("-", 2)[-2] for s in record.left.sessions} == {"B", "R"}
    assert "cloud" not in {site.name for site in service.sites.all()}
    rewired = composition(A, job_body("B", "edge-b"), job_body("R", "edge-a"))
    done = service.compositions.apply(rewired, ApplyRequest(wait_s=LIMIT_S, drop_queues=True))
    assert done.state == "done", service.changes.get(done.change)
    assert [len(engine(site).running()) for site in ("edge-a", "edge-b")] == [2, 1]
    assert service.compositions.delete("c", LIMIT_S).done


def test_unknown_names_are_not_found(service: Service) -> None:
    for call in (
        service.forgetting.job,
        service.forgetting.composition,
        service.forgetting.site,
    ):
        with pytest.raises(NotFoundError):
            call("nobody", force=True)
    service.jobs.post(job("A"), LIMIT_S)
    with pytest.raises(NotFoundError):
        service.forgetting.composition("~A", force=True)
