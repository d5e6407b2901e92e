"""The analyzer on a real standalone cluster: a master and a worker of the pyspark package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.samples_by_hand import dataset, plan, running, site
from tests.waiting import wait_for

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_LIMIT_S = 120.0
_SECRET = "the-secret-of-this-cluster"
_SECURITY = (
    "-Dspark.authenticate=true",
    f"-Dspark.authenticate.secret={_SECRET}",
    "-Dspark.network.crypto.enabled=true",
)


@contextmanager
def _daemon(log: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark, ended by its id."""
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    env |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join(_SECURITY)}
    with log.open("wb") as out:
        process = subprocess.Popen([str(_CLASS), *arguments], stdout=out, stderr=out, env=env)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _find_in_log(log: Path, pattern: str) -> str:
    def text() -> str:
        return log.read_text(errors="replace")

    return wait_for(lambda: re.search(pattern, text()), text)[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The master's address; one worker of one core."""
    log, worker = tmp_path / "master.log", tmp_path / "worker.log"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    package = "org.apache.spark.deploy"
    with _daemon(log, f"{package}.master.Master", *ports):
        master = _find_in_log(log, r"Starting Spark master at (spark://\S+)")
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        with _daemon(worker, f"{package}.worker.Worker", *ports, *room, master):
            _find_in_log(worker, r"(Successfully registered)")
            yield master


def _analyse(cluster: str, tmp_path: Path, secret: str) -> subprocess.CompletedProcess[str]:
    root = dataset(tmp_path / "metrics", running(), [plan()], [*site("edge-a"), *site("cloud")])
    file = tmp_path / "secret"
    file.write_text(secret)
    argv = [
        "-m",
        "speck.analyzer",
        "--dataset",
        str(root),
        "--out",
        str(tmp_path / "analysis.json"),
    ]
    argv += ["--master", cluster, "--secret-file", str(file)]
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )


@pytest.mark.long
def test_the_analysis_on_a_cluster_is_that_of_this_machine(cluster: str, tmp_path: Path) -> None:
    """Its executor finds nothing of speck: only Spark's own expressions travel. Only who knows the
    cluster's secret is served."""
    done = _analyse(cluster, tmp_path, _SECRET)

    assert done.returncode == 0, done.stderr[-4000:]
    (job,) = json.loads((tmp_path / "analysis.json").read_text())["jobs"]
    assert job["core_s_per_record"] == pytest.approx(0.002)
    (ran,) = (tmp_path / "work").glob("app-*/0/stderr")
    assert "Finished task" in ran.read_text()
    assert _analyse(cluster, tmp_path, "guessed").returncode == 1
