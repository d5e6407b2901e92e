"""The views of the API while sites are slow or silent, and of jobs that are being removed."""

from __future__ import annotations

import threading

import pytest

from speck.errors import EngineRefusedError, NotFoundError, UnreachableError
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    job,
    job_body,
    look_anew,
)
from tests.waiting import wait_for

A, B = job_body("A"), job_body("B", "cloud")


class Held:
    """Holds all looks at an engine until it is let go."""

    def __init__(self, site: str):
        self.looking, self.go_on = threading.Event(), threading.Event()
        self.outwaited = False  # somebody has waited for a look for as long as it was held
        self._engine = engine(site)

    def __enter__(self) -> Held:
        self._engine.before = self._hold
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.before = None
        self.go_on.set()
        assert not self.outwaited, "a request waited for a look until that was given up"

    def _hold(self, kind: str, subject: str) -> None:
        if kind == "view":
            self.looking.set()
            self.outwaited |= not self.go_on.wait(LIMIT_S)


def test_a_slow_site_holds_up_no_look_at_another(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    look_anew(service)
    with Held("cloud") as cloud:
        slow = threading.Thread(target=service.jobs.all)
        slow.start()
        assert cloud.looking.wait(LIMIT_S)
        assert service.jobs.get("A")["state"] == "running"
    slow.join(LIMIT_S)


def test_while_a_slow_site_is_looked_at_its_last_look_is_served(service: Service) -> None:
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    look_anew(service)
    with Held("cloud"):
        for _ in range(3):
            assert service.jobs.get("B")["state"] == "running"
        assert service.sites.get("cloud")["state"] == "up"
    assert engine("cloud").count("view") > 0


def test_a_site_of_which_nothing_is_known_yet_is_unknown(service: Service) -> None:
    service.connections.close()
    service.polls.forget("cloud")
    with Held("cloud"):
        assert service.sites.get("cloud")["state"] == "unknown"


def test_a_look_from_before_a_job_came_does_not_make_it_lost(service: Service) -> None:
    assert service.sites.get("cloud")["state"] == "up"
    answer = service.jobs.post(job("B", "cloud"), LIMIT_S)
    assert answer.status == 201
    look_anew(service)
    with Held("cloud"):
        assert service.jobs.get("B")["state"] == "running"


@pytest.mark.parametrize("part", ["engine", "broker"])
def test_a_site_of_which_one_half_answers_is_degraded(service: Service, part: str) -> None:
    assert service.sites.get("edge-a")["state"] == "up"
    assert service.sites.get("edge-a")["error"] is None
    half = engine("edge-a") if part == "engine" else broker("edge-a")
    half.unreachable = True
    service.polls.forget("edge-a")
    site = service.sites.get("edge-a")
    assert site["state"] == "degraded"
    assert site["error"].startswith(f"{part}: cannot reach ")
    assert [s["name"] for s in service.sites.all(state="degraded")] == ["edge-a"]
    assert (service.sites.get("edge-a")["slots"]["total"] is None) == (part == "engine")


def test_a_site_whose_broker_accepts_connections_and_answers_nothing_is_degraded(
    service: Service,
) -> None:
    assert service.sites.get("edge-a")["state"] == "up"
    broker("edge-a").refuse("view", 2, UnreachableError("cannot read: no answer in time"))
    service.polls.broker_numbers.poll(["edge-a"], fresh_s=0.0)
    service.polls.brokers.forget("edge-a")
    for _ in range(2):
        site = service.sites.get("edge-a")
        assert (site["state"], site["error"]) == (
            "degraded",
            "broker: cannot read: no answer in time",
        )
        service.polls.broker_numbers.poll(["edge-a"], fresh_s=0.0)
    assert service.sites.get("edge-a")["state"] == "up"


def test_a_job_on_its_way_out_is_shown_as_stopping(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    holding, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        if kind == "cancel":
            holding.set()
            assert go_on.wait(LIMIT_S)

    engine("cloud").before = hold
    service.compositions.apply(composition(A), ApplyRequest())
    assert holding.wait(LIMIT_S)
    body = {j["job_name"]: j["state"] for j in service.jobs.all()}
    assert body == {"A": "running", "B": "stopping"}
    assert service.jobs.get("B")["site"] == "cloud"
    engine("cloud").before = None
    go_on.set()
    wait_for(lambda: service.changes.under_way("c") is None)
    with pytest.raises(NotFoundError):
        service.jobs.get("B")


def test_a_job_whose_removal_failed_is_shown_and_drifts(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))
    failed = service.compositions.apply(composition(A), DONE)
    assert failed.body["state"] == "failed"
    job = service.jobs.get("B")
    assert (job["state"], job["error"]) == ("running", "cannot cancel B: not now")
    assert job["job_path"].startswith("artifact:")
    assert [j["job_name"] for j in service.compositions.get("c")["jobs"]] == ["A", "B"]
    assert service.compositions.drift("c") == {
        "drift": [
            {
                "job_name": "B",
                "kind": "leftover",
                "expected": "removed",
                "observed": "cannot cancel B: not now",
            }
        ]
    }
    assert service.compositions.apply(composition(A), DONE).body["state"] == "done"
    assert service.compositions.drift("c") == {"drift": []}


def test_a_single_job_whose_removal_failed_tells_why(service: Service) -> None:
    service.jobs.post(job("B", "cloud"), LIMIT_S)
    engine("cloud").refuse("cancel", 1, EngineRefusedError("cannot cancel B: not now"))
    with pytest.raises(EngineRefusedError):
        service.jobs.delete("B", LIMIT_S)
    body = service.jobs.get("B")
    assert (body["state"], body["error"]) == ("running", "cannot cancel B: not now")


def test_jobs_that_a_deletion_has_done_with_are_not_shown_as_pending(service: Service) -> None:
    service.compositions.apply(composition(A, B), DONE)
    engine("cloud").unreachable = True
    service.compositions.delete("c", 0)
    wait_for(lambda: service.records.incarnation("c", "A") is None)
    assert [j["job_name"] for j in service.jobs.all()] == ["B"]
    engine("cloud").unreachable = False
    wait_for(lambda: service.changes.under_way("c") is None)
