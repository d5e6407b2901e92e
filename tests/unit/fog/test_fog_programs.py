"""The runners of a fog, with no engines and brokers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from binders.process.engine import ProcessEngine
from binders.spark.engine import SparkEngine
from speck.binding import Artifact, ArtifactKind, Submission, Target
from speck.errors import PermanentError
from speck.fog import flink, mosquitto
from speck.fog.sites import Fog
from speck.model.observation import RunState
from tests.channels import LocalChannel
from tests.flink_server import sha256_of
from tests.runners import PROGRAMS
from tests.waiting import wait_for


@pytest.fixture
def fog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fog]:
    monkeypatch.setattr(flink, "start", lambda *_, **__: None)
    monkeypatch.setattr(mosquitto, "start", lambda *_, **__: None)
    jars = ("speck-flink-connector.jar", "speck-runtime.jar", "speck-exit-guard.jar")
    monkeypatch.setattr(Fog, "_copy_jars", lambda _: dict.fromkeys(jars, tmp_path))
    fog = Fog(tmp_path / "fog")
    yield fog
    fog.down()


def test_programs_run_in_a_fog_and_end_with_it(fog: Fog) -> None:
    fog.up(1, clouds=0, programs=True, agents_for="http://127.0.0.1:1")
    (body,) = fog.site_bodies()
    assert body["spe"]["beside"] == {"kind": "process"}
    state = fog.state_folder("edge-a")
    wait_for((state / "engine/status.json").exists, "the runner", 60)
    engine = ProcessEngine(Target("", agent=LocalChannel(state)))
    program = PROGRAMS / "stepping.py"
    artifact = Artifact(sha256_of(program), program, ArtifactKind.PYFILE)
    job = uuid4().hex
    engine.submit(Submission(job, "trial", artifact, "", ("--child",)))

    def awaits(state: RunState) -> None:
        wait_for(lambda: engine.status(job) is state, f"the program to be {state}", 60)

    awaits(RunState.RUNNING)
    pid = int((state / f"programs/{job}/run/own/child").read_text())
    fog.kill("edge-a", "runner")
    assert Path(f"/proc/{pid}").exists(), "programs outlive it"
    fog.start("edge-a")
    awaits(RunState.RUNNING)
    assert fog.down() == 3, "agent, runner and program"
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "what the program has started to end", 10)


def test_clouds_run_jobs_in_pyspark(fog: Fog, tmp_path: Path) -> None:
    jar = tmp_path / "fog/lib/speck-spark-connector.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"a jar")
    fog.up(1, clouds=1, spark=True, agents_for="http://127.0.0.1:1")
    edge, cloud = (body["spe"] for body in fog.site_bodies())
    assert "beside" not in edge
    assert cloud["beside"] == {"kind": "spark"}
    state = fog.state_folder("cloud")
    wait_for((state / "engine/status.json").exists, "the runner", 60)
    engine = SparkEngine(Target("", agent=LocalChannel(state)))
    assert engine.view().version.startswith("Spark 4.")
    assert not (fog.state_folder("edge-a") / "engine").exists()


def test_a_fog_of_shared_state_runs_no_programs(fog: Fog) -> None:
    with pytest.raises(PermanentError, match="its sites have no agents"):
        fog.up(programs=True, shared_state=True)
