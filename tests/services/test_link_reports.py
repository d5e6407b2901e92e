"""What our connector says of its links comes through a real Flink's REST API, texts included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from binders.flink.engine import FlinkEngine
from binders.mqtt import MqttBroker
from speck.binding import Artifact, Submission, Target
from speck.model.engines import ArtifactKind
from speck.model.measurement import LinkMeasure
from tests.flink_server import FlinkServer, sha256_of
from tests.mosquitto_server import mosquitto
from tests.waiting import wait_for

JAR = Path(__file__).parents[2] / "edge_jobs/jobs/target/speck-jobs-fat.jar"


@pytest.fixture
def engine(flink: FlinkServer) -> Iterator[FlinkEngine]:
    engine = FlinkEngine(Target(flink.url))
    yield engine
    for job in engine.view().jobs.values():
        if not job.state.terminal:
            engine.cancel(job.engine_job_id)
    wait_for(lambda: all(job.state.terminal for job in engine.view().jobs.values()))
    engine.close()


def start(engine: FlinkEngine, source: str, sink: str, *args: str) -> str:
    job_id = uuid4().hex
    links = {
        "--job-name": "links",
        "--client-id": f"speck-{job_id[:8]}-links-{job_id[8:16]}",
        "--epoch": "1",
        "--source-broker": source,
        "--source-topic": "in",
        "--sink-broker": sink,
        "--sink-topic": "out",
        "--sink-readers": "none",
    }
    arguments = (*(part for pair in links.items() for part in pair), *args)
    sha = sha256_of(JAR)
    engine.submit(
        Submission(
            job_id,
            "links",
            Artifact(sha, JAR, ArtifactKind.JAR),
            "io.speck.jobs.PassThrough",
            arguments,
            1,
            None,
        )
    )
    return job_id


def read(engine: FlinkEngine, job_id: str) -> LinkMeasure:
    measure = engine.measure([job_id]).jobs.get(job_id)
    return (measure.link if measure else None) or LinkMeasure()


@pytest.mark.long
def test_a_refused_login_and_what_is_left_out_are_measured(
    engine: FlinkEngine, tmp_path: Path
) -> None:
    with (
        mosquitto(tmp_path / "open") as here,
        mosquitto(tmp_path / "closed", allow_anonymous="false") as closed,
    ):
        job_id = start(engine, here.address, closed.address)
        problem = wait_for(lambda: read(engine, job_id).problem, "the refusal")
        assert "the broker refuses the login: NOT_AUTHORIZED" in problem
        assert closed.address.removeprefix("tcp://") in problem
        engine.cancel(job_id)

        job_id = start(engine, here.address, here.address, "--max-record-bytes", "100")
        broker = MqttBroker(Target(here.address))
        wait_for(lambda: broker.publish("in", [b"x" * 101]) == 0, "the reader")
        wait_for(lambda: read(engine, job_id).left_out >= 1, "the record is counted")
        assert read(engine, job_id).problem is None
        broker.publish("in", [b"x"])  # the next announcement has the count, too
        wait_for(
            lambda: any(sent.left_out for sent in broker.view().sent.values()), "the announcement"
        )
        broker.close()
