"""What connectors report of their links is shown where users look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binders.memory.engine import MemoryEngine
from speck.deploy.operations.outcome import Patience
from speck.model.ids import sink_client_id
from speck.model.measurement import JobMeasure, LinkMeasure
from speck.model.observation import Sent
from speck.service.compositions import Request
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import broker, composition, engine, job_body
from tests.unit.service.test_watch import Time, Watched, deploy, incarnation
from tests.waiting import wait_for

LOGIN = "cannot read tcp://edge-a.test:1883 A-in: the broker refuses the login: NOT_AUTHORIZED"
WRITE = "cannot write to tcp://edge-a.test:1883 A-out: the broker refuses records: NOT_AUTHORIZED"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    time = Time()
    with memory_service(tmp_path, [site_body("edge-a"), site_body("cloud")], clock=time) as opened:
        watched = Watched(opened, time)
        watched.look()  # what comes later was not counted before the service started
        yield watched
        watched.watch.close()


def report(watched: Watched, **what: Any) -> None:
    watched.links[incarnation(watched, "A")] = LinkMeasure(**what)


def announce(watched: Watched, **what: Any) -> None:
    """What the sink of A announces at its broker."""
    deployed = watched.service.records.incarnation("c", "A")
    assert deployed is not None
    job, installation = deployed.job, watched.service.records.installation
    client_id = sink_client_id(installation, "A", job.source, job.sink)
    broker("edge-a").sent[client_id] = Sent("p", 1, 7, topic="A-out", **what)


def test_a_refused_login_is_the_jobs_error_and_stalls_it(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B"))
    report(watched, problem=LOGIN)
    watched.look()
    assert watched.job("A")["error"] == LOGIN
    assert watched.job("A")["state"] == "running", "connections are lost and made again"
    watched.look(60)
    job = watched.job("A")
    assert job["state"] == "stalled"
    assert LOGIN in job["error"]
    assert watched.job("B")["error"] is None
    assert watched.events("job") == [f"A: {LOGIN}"]
    report(watched)
    watched.look()
    assert watched.job("A")["state"] == "running"
    assert watched.job("A")["error"] is None
    assert "A reads and writes its links again" in watched.events("job")


def test_a_broker_that_answers_nobody_stalls_no_job(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    broker("edge-a").unreachable = True
    report(watched, problem="cannot read tcp://edge-a.test:1883 A-in: Connection refused")
    watched.look()
    watched.look(60)
    job = watched.job("A")
    assert job["state"] == "running"
    assert "Connection refused" in job["error"]


def test_a_refused_publish_is_read_at_the_broker_when_the_engine_says_nothing(
    watched: Watched,
) -> None:
    deploy(watched, job_body("A"))
    announce(watched, refused=3, problem=WRITE)
    watched.look()
    watched.look()
    watched.look()
    assert watched.job("A")["error"] == WRITE
    assert watched.events("job") == [f"A: {WRITE}"]
    report(watched)  # newer than what is retained
    watched.look()
    assert watched.job("A")["error"] is None


def test_losses_are_counted_in_jobs_and_events(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, left_out=1)
    watched.look()
    announce(watched, left_out=2, lost=4)
    watched.look(61)
    job = watched.job("A")
    assert (job["records_left_out"], job["records_lost"], job["sessions_lost"]) == (2, 4, 0)
    messages = sorted(watched.events("job"))
    assert messages[0].startswith("A left out 1 record: larger than its broker")
    assert messages[1].startswith("A left out 1 record: larger than its broker")
    assert messages[2] == "A lost 4 records, as its delivery or its rewiring allows"


def test_what_a_reader_drops_is_counted_once_though_it_is_missing_too(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, dropped=3)
    watched.watch.sessions.missing["A"] = 2
    watched.look()
    assert watched.job("A")["records_lost"] == 3
    watched.watch.sessions.missing["A"] = 5
    watched.look()
    assert watched.job("A")["records_lost"] == 5
    assert watched.events("job") == ["A dropped 3 records at QoS 0: more came than it takes"]


def test_the_losses_of_a_job_go_on_over_its_incarnations(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, left_out=2)
    announce(watched, left_out=2)
    watched.look()
    deploy(watched, job_body("A", state="stopped"))
    assert watched.job("A")["records_left_out"] == 2
    deploy(watched, job_body("A"))
    report(watched, left_out=1)
    watched.look()
    assert watched.job("A")["records_left_out"] == 3


def test_a_start_that_is_refused_says_why(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = watched.service
    service.executions.patience = Patience(connect_s=0.0, start_s=0.3, stop_poll_s=0.01)

    def metrics(_: MemoryEngine, job_id: str) -> dict[str, float]:
        engine("edge-a").measures[job_id] = JobMeasure(job_id, (), link=LinkMeasure(LOGIN))
        return {"source.connected": 0.0}

    monkeypatch.setattr(MemoryEngine, "metrics", metrics)
    change = service.compositions.apply(composition(job_body("A")), Request()).body["change"]
    wait_for(lambda: service.changes.get(change)["state"] == "failed")
    assert service.changes.get(change)["error"] == (
        "cannot start A: all its tasks run at edge-a, but its source is not connected to"
        f" tcp://edge-a.test:1883: {LOGIN}"
    )
