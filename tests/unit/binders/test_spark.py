"""Jobs of PySpark and other programs under one runner; nothing here starts a session."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import pytest

from binders.process.engine import ProcessEngine
from binders.spark.engine import SparkEngine
from speck.binding import (
    AgentChannel,
    Artifact,
    ArtifactKind,
    Checkpointing,
    Submission,
    Target,
    artifact_kinds,
)
from speck.errors import EngineRefusedError, PermanentError, UnreachableError
from speck.model.observation import RunState
from speck.runner.claims import Claim
from speck.runner.settings import Settings
from speck.runner.spark import find_spark
from tests.channels import LocalChannel
from tests.runners import PROGRAMS, LocalRunner
from tests.unit.binders.test_process_status import RUN, STATUS
from tests.waiting import wait_for

ASKS = """
import json, os, pathlib, sys, time
state = pathlib.Path(os.environ["SPECK_STATE_DIR"])
(state / "seen.new").write_text(json.dumps({"environment": dict(os.environ), "path": sys.path}))
(state / "seen.new").rename(state / "seen")
time.sleep(600)
"""


class Site:
    """A runner, with both kinds of engines over it."""

    def __init__(self, folder: Path, jar: Path | None, **settings: object) -> None:
        self.folder = folder / "state"
        self.local = LocalRunner(self.folder, spark_jar=jar, **settings)
        target = Target("", agent=LocalChannel(self.folder))
        self.spark, self.process = SparkEngine(target), ProcessEngine(target)

    def start(self, engine: ProcessEngine, program: Path, *args: str, width: int = 1) -> str:
        content = program.read_bytes()
        artifact = Artifact(sha256(content).hexdigest(), program, ArtifactKind.PYFILE)
        job = uuid4().hex
        engine.submit(Submission(job, "trial", artifact, "", args, parallelism=width))
        return job


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    jar = tmp_path / "connector.jar"
    jar.write_bytes(b"a jar")
    return jar


@pytest.fixture
def site(tmp_path: Path, jar: Path) -> Iterator[Site]:
    site = Site(tmp_path, jar)
    yield site
    site.local.stop()


def test_each_engine_sees_its_own_jobs(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "stepping.py"
    shutil.copy(PROGRAMS / "stepping.py", program)
    here, there = site.start(site.spark, program), site.start(site.process, program)
    for engine, own in ((site.spark, here), (site.process, there)):
        wait_for(lambda e=engine, j=own: e.status(j) is RunState.RUNNING, "the job to run")
        assert set(engine.view().jobs) == {own} == set(engine.jobs())
        assert engine.measure([here, there]).jobs.keys() == {own}
    assert site.spark.status(there) is None
    site.spark.cancel(there)
    assert site.process.status(there) is RunState.RUNNING
    assert site.spark.view().version.startswith("Spark 4.")


def test_a_silent_job_does_not_count_as_running(tmp_path: Path, jar: Path) -> None:
    """Its session may take minutes to start; other programs need not report at all."""
    site = Site(tmp_path, jar, quiet_s=0.2)
    program = tmp_path / "asks.py"
    program.write_text(ASKS)
    silent, other = site.start(site.spark, program), site.start(site.process, program)
    wait_for(lambda: site.process.status(other) is RunState.RUNNING, "the other to run")
    assert site.spark.status(silent) is RunState.STARTING
    site.local.stop()


def test_a_job_gets_spark_with_half_of_its_memory_as_heap(
    site: Site, jar: Path, tmp_path: Path
) -> None:
    program = tmp_path / "asks.py"
    program.write_text(ASKS)
    job = site.start(site.spark, program, "--memory-mb", "3000", width=2)
    seen = site.folder / f"programs/{job}/state/seen"
    environment = json.loads(wait_for(lambda: seen.exists() and seen.read_text(), "it"))
    variables = environment["environment"]
    words = shlex.split(variables["PYSPARK_SUBMIT_ARGS"])
    assert words[:6] == [
        *("--master", "local[2]", "--driver-memory", "1500m"),
        *("--driver-class-path", str(jar)),
    ]
    assert words[-1] == "pyspark-shell"
    assert any(" -XX:+ExitOnOutOfMemoryError " in word for word in words)
    assert str(jar) in environment["path"]
    assert variables["PYSPARK_PYTHON"] == site.local.settings.python


def test_a_program_that_is_no_job_of_spark_gets_nothing_of_it(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    program.write_text(ASKS)
    job = site.start(site.process, program)
    seen = site.folder / f"programs/{job}/state/seen"
    content = wait_for(lambda: seen.exists() and seen.read_text(), "it")
    assert "PYSPARK" not in content


def test_a_runner_without_spark_is_no_engine_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path, None)
    program = tmp_path / "asks.py"
    program.write_text(ASKS)
    with pytest.raises(UnreachableError, match=r"^cannot reach Spark: .* --spark-jar"):
        site.spark.view()
    order = {"do": "start", "engine": "spark", "label": "a", "name": "trial", "artifact": "b"}
    order |= {"kind": "pyfile", "entry": "", "args": [], "width": 1, "state": None}
    answer = LocalChannel(site.folder).order(order)
    assert answer["refused"] == "this runner has no Spark; start it with --spark-jar"
    assert site.process.view().jobs == {}
    site.local.stop()


def test_only_programs_of_python_are_taken(site: Site, tmp_path: Path) -> None:
    assert artifact_kinds("spark") == {ArtifactKind.PYFILE}
    absent = Artifact("1" * 64, tmp_path / "absent.py", ArtifactKind.PYFILE)
    with pytest.raises(EngineRefusedError, match=r"^cannot upload"):
        site.spark.upload(absent)


def test_a_python_without_pyspark_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(PermanentError, match=r"^cannot run jobs with Spark: .* has no pyspark"):
        find_spark(str(bare))


def test_the_memory_of_a_job_follows_from_its_kind_unless_it_names_it() -> None:
    settings = Settings(Path("state"), memory_mb=100, spark_memory_mb=900)
    assert Claim("a", "a").find_memory_mb(settings) == 100
    assert Claim("a", "a", engine="spark").find_memory_mb(settings) == 900
    named = Claim("a", "a", args=("--memory-mb", "700"), engine="spark")
    assert named.find_memory_mb(settings) == 700


def test_the_parallelism_of_a_state_is_what_its_program_reports() -> None:
    def look(**counters: int) -> Checkpointing | None:
        run = {**RUN, "engine": "spark", "report": {"interval_ms": 500, "counters": counters}}
        agent = SimpleNamespace(status=lambda: {**STATUS, "spark": "4.3.0", "runs": {"a": run}})
        return SparkEngine(Target("", agent=cast(AgentChannel, agent))).checkpointing("a")

    assert look() == Checkpointing(0.5, 3, 5)
    assert look(state_partitions=2) == Checkpointing(0.5, 3, 5, parallelism=2)


def test_a_program_with_spark_may_take_longer_to_end_but_no_longer_than_the_service_waits() -> None:
    settings = Settings(Path("state"), stop_s=1, spark_stop_s=2)
    assert Claim("a", "a").find_stop_s(settings) == 1
    assert Claim("a", "a", engine="spark").find_stop_s(settings) == 2
    assert Settings(Path("state")).spark_stop_s < SparkEngine.limits.stop_idle_s
