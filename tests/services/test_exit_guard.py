"""A job that calls System.exit fails alone, on every Java of this machine; on a real Flink."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from binders.flink.engine import FlinkEngine
from speck.binding import Artifact, Submission, Target
from speck.errors import EngineRefusedError
from speck.fog.flink_conf import Runtime
from speck.model.engines import ArtifactKind
from speck.model.observation import RunState
from tests.flink_server import JOB_CLASS, flink_cluster, sha256_of
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@cache
def javas() -> dict[str, Path]:
    """One folder of a Java of each version from 17 on, by version: JAVA_HOME's, and those that
    Debian's packages install."""
    homes = sorted(Path("/usr/lib/jvm").glob("*/"))
    if "JAVA_HOME" in os.environ:
        homes.append(Path(os.environ["JAVA_HOME"]))
    found = {}
    for home in homes:
        java = home / "bin" / "java"
        if java.is_file():
            words = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
            version = words.stderr.partition('"')[2].partition(".")[0]
            if version.isdigit() and int(version) >= 17:
                found[version] = home
    return found


def submission(jar: Path, *args: str) -> Submission:
    return Submission(
        engine_job_id=uuid4().hex,
        job_name="trial",
        artifact=Artifact(sha256_of(jar), jar, ArtifactKind.JAR),
        entry=JOB_CLASS,
        args=("--job-name", "trial", *args),
    )


# flink/test_submissions.py tries it on the one JVM that all tests share
@pytest.mark.parametrize("runtime", [pytest.param("single", marks=pytest.mark.long), "cluster"])
@pytest.mark.parametrize("java", javas())
def test_a_job_that_exits_fails_alone(
    java: str,
    runtime: Runtime,
    trial_jar: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(javas()[java]))
    with flink_cluster(tmp_path, slots=2, kind=runtime) as server:
        engine = FlinkEngine(Target(server.url))
        bystander, exiting = submission(trial_jar), submission(trial_jar, "--exit-task")
        engine.submit(bystander)
        engine.submit(exiting)
        wait_for(lambda: engine.status(exiting.engine_job_id) is RunState.FAILED, "its failure")
        exception = engine.exceptions(exiting.engine_job_id)[0]
        assert "System.exit(7) was refused" in exception.trace
        with pytest.raises(EngineRefusedError, match=r"System\.exit\(3\) was refused"):
            engine.try_main(submission(trial_jar, "--exit"))
        assert all(process.running for process in server.processes.values())
        assert engine.status(bystander.engine_job_id) is RunState.RUNNING
        assert [f.setting for f in engine.check() if f.severity == "error"] == []
        engine.close()
