"""What connectors report of their links is shown where users look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from binders.flink.refusals import is_lasting
from binders.memory.engine import MemoryEngine
from speck.deploy.operations.outcome import Patience
from speck.model.ids import sink_client_id
from speck.model.measurement import EngineMeasures, JobMeasure, LinkMeasure
from speck.model.observation import Sent
from speck.model.values import JsonObject
from speck.service.compositions import ApplyRequest
from tests.service_helpers import broker, composition, engine, job_body
from tests.waiting import wait_for
from tests.watching import Watched, deploy, incarnation

LOGIN = "cannot read tcp://edge-a.test:1883 A-in: the broker refuses the login: NOT_AUTHORIZED"
WRITE = "cannot write to tcp://edge-a.test:1883 A-out: the broker refuses records: NOT_AUTHORIZED"


@pytest.fixture(autouse=True)
def begun(watched: Watched) -> None:
    """What comes later was not counted before the service started."""
    watched.look()


def report(watched: Watched, **what: Any) -> None:
    watched.links[incarnation(watched, "A")] = LinkMeasure(**what)


def announce(watched: Watched, **what: Any) -> None:
    """What the sink of A announces at its broker."""
    deployed = watched.service.records.incarnations.get("c", "A")
    assert deployed is not None
    job, installation = deployed.job, watched.service.records.installation
    client_id = sink_client_id(installation, "A", job.source, job.sink)
    broker("edge-a").sent[client_id] = Sent("p", 1, 7, topic="A-out", **what)


def test_a_refused_login_is_the_jobs_error_and_stalls_it(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B"))
    report(watched, problem=LOGIN)
    watched.look()
    assert watched.job("A").error == LOGIN
    assert watched.job("A").state == "running", "connections are lost and made again"
    watched.look(60)
    job = watched.job("A")
    assert job.state == "stalled"
    assert LOGIN in job.error
    assert watched.job("B").error is None
    assert watched.events("job") == [f"A: {LOGIN}"]
    report(watched)
    watched.look()
    assert watched.job("A").state == "running"
    assert watched.job("A").error is None
    assert "A reads and writes its links again" in watched.events("job")


def test_a_broker_that_answers_nobody_stalls_no_job(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    broker("edge-a").unreachable = True
    report(watched, problem="cannot read tcp://edge-a.test:1883 A-in: Connection refused")
    watched.look()
    watched.look(60)
    job = watched.job("A")
    assert job.state == "running"
    assert "Connection refused" in job.error


def test_a_refused_publish_is_read_at_the_broker_when_the_engine_says_nothing(
    watched: Watched,
) -> None:
    deploy(watched, job_body("A"))
    announce(watched, refused=3, problem=WRITE)
    watched.look()
    watched.look()
    watched.look()
    assert watched.job("A").error == WRITE
    assert watched.events("job") == [f"A: {WRITE}"]
    report(watched)  # newer than what is retained
    watched.look()
    assert watched.job("A").error is None


def test_losses_are_counted_in_jobs_and_events(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, left_out=1)
    watched.look()
    announce(watched, left_out=2, lost=4)
    watched.look(61)
    job = watched.job("A")
    assert (job.records_left_out, job.records_lost, job.sessions_lost) == (2, 4, 0)
    messages = sorted(watched.events("job"))
    assert messages[0].startswith("A left out 1 record: larger than its broker")
    assert messages[1].startswith("A left out 1 record: larger than its broker")
    assert messages[2] == "A lost 4 records, as its delivery or its rewiring allows"


def test_what_a_reader_drops_is_counted_once_though_it_is_missing_too(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, dropped=3)
    watched.watch.sessions.missing["A"] = 2
    watched.look()
    assert watched.job("A").records_lost == 3
    watched.watch.sessions.missing["A"] = 5
    watched.look()
    assert watched.job("A").records_lost == 5
    assert watched.events("job") == [
        "A dropped 3 records, as its delivery allows: more came than it takes"
    ]


def test_the_losses_of_a_job_go_on_over_its_incarnations(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    report(watched, left_out=2)
    announce(watched, left_out=2)
    watched.look()
    deploy(watched, job_body("A", state="stopped"))
    assert watched.job("A").records_left_out == 2
    deploy(watched, job_body("A"))
    report(watched, left_out=1)
    watched.look()
    assert watched.job("A").records_left_out == 3


def disconnect(monkeypatch: pytest.MonkeyPatch, problem: str, site: str = "edge-a") -> None:
    """Let the connector of each job at a site report that its source is not connected."""
    measure, is_connected = MemoryEngine.measure, MemoryEngine.is_connected

    def measure_links(self: MemoryEngine, job_ids: Sequence[str]) -> EngineMeasures:
        measures = measure(self, job_ids)
        here = measures.jobs.keys() & engine(site).jobs
        refused = {
            job_id: JobMeasure(
                job_id, (), link=LinkMeasure(problem, is_lasting=is_lasting(problem))
            )
            for job_id in here
        }
        return replace(measures, jobs={**measures.jobs, **refused})

    def is_connected_elsewhere(self: MemoryEngine, job_id: str) -> bool | None:
        return False if job_id in engine(site).jobs else is_connected(self, job_id)

    monkeypatch.setattr(MemoryEngine, "measure", measure_links)
    monkeypatch.setattr(MemoryEngine, "is_connected", is_connected_elsewhere)


def begin(watched: Watched, *jobs: JsonObject) -> str:
    body = watched.service.compositions.apply(composition(*jobs), ApplyRequest())
    return str(body.change)


def await_failure(watched: Watched, change: str) -> str:
    wait_for(lambda: watched.service.changes.get(change).state == "failed")
    return str(watched.service.changes.get(change).error)


def test_a_start_whose_source_is_not_connected_says_why(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience(connect_s=0.0, start_s=0.3, start_ask_s=0.01, stop_poll_s=0.01)
    watched.service.executions.patience = patience
    busy = "cannot read tcp://edge-a.test:1883 A-in: the broker refuses the login: SERVER_BUSY"
    disconnect(monkeypatch, busy)
    assert await_failure(watched, begin(watched, job_body("A"))) == (
        "cannot start A: all its tasks run at edge-a, but its source is not connected to"
        f" tcp://edge-a.test:1883: {busy}"
    )


@pytest.mark.parametrize(
    "problem",
    [
        LOGIN,
        "cannot write to tcp://cloud.test:1883 x: the broker refuses the login: BANNED",
        "cannot read tcp://old.test:1883 x: the broker refuses the login: IDENTIFIER_REJECTED",
        "cannot read tcp://edge-a.test:1883 A-in: the broker refuses the subscription:"
        " NOT_AUTHORIZED",
    ],
)
def test_a_start_that_a_broker_refuses_fails_at_once_and_holds_no_slot(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    patience = Patience(connect_s=0.0, start_ask_s=0.01, stop_poll_s=0.01)  # start_s: minutes
    watched.service.executions.patience = patience
    disconnect(monkeypatch, problem)
    assert await_failure(watched, begin(watched, job_body("A"))) == (
        f"cannot start A: {problem}; check the broker's users and permissions, and the credentials"
        " that the engine of edge-a has for it"
    )
    assert all(job.state.terminal for job in engine("edge-a").jobs.values())


def test_a_move_that_a_broker_refuses_lets_the_job_go_on_where_it_was(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(watched, job_body("A"))
    patience = Patience(connect_s=0.0, start_ask_s=0.01, stop_poll_s=0.01)
    watched.service.executions.patience = patience
    with monkeypatch.context() as refusing:
        disconnect(refusing, LOGIN, "cloud")
        moved = job_body("A", "cloud", source_site="edge-a", sink_site="edge-a")
        assert LOGIN in await_failure(watched, begin(watched, moved))
    assert watched.job("A").state == "running"
    assert [job.state.terminal for job in engine("cloud").jobs.values()] == [True]
