"""The analyzer and jobs on a real standalone cluster, of a master and a worker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from speck.binding import Target, open_broker, open_links
from speck.client import Client
from speck.fog.service import serving
from speck.metrics.dataset.files import is_finished
from speck.metrics.dataset.origins import UNITS
from speck.metrics.dataset.remote import open_s3
from speck.model.values import JsonObject
from tests.mosquitto_server import mosquitto
from tests.process_programs import spark_program
from tests.s3_server import s3_server
from tests.samples_by_hand import EVERY_S, dataset, plan, running, site
from tests.waiting import wait_for

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_CHECKOUT = Path(__file__).parents[2]
_JARS = _CHECKOUT / ".cache" / "spark-s3"
_LIMIT_S = 300.0
_LONG_S = 2.1 * 3600
"""A window of which sums are cached."""
_SECRET = "the-secret-of-this-cluster"
_SECURITY = (
    "-Dspark.authenticate=true",
    f"-Dspark.authenticate.secret={_SECRET}",
    "-Dspark.network.crypto.enabled=true",
)


@contextmanager
def _daemon(log: Path, *arguments: str, hidden: Sequence[Path] = ()) -> Iterator[None]:
    """A process of Spark, ended by its id; it sees nothing in the folders `hidden`."""
    command = [str(_CLASS), *arguments]
    if hidden:
        mounts = "".join(f"mount -t tmpfs none {folder} && " for folder in hidden)
        command = ["unshare", "--mount", "sh", "-c", f'{mounts}exec "$0" "$@"', *command]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    env |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join(_SECURITY)}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
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


@contextmanager
def _cluster(folder: Path, hidden: Sequence[Path] = ()) -> Iterator[str]:
    """The master's address; one worker of one core."""
    log, worker = folder / "master.log", folder / "worker.log"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    package = "org.apache.spark.deploy"
    with _daemon(log, f"{package}.master.Master", *ports):
        master = _find_in_log(log, r"Starting Spark master at (spark://\S+)")
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
        with _daemon(worker, f"{package}.worker.Worker", *ports, *room, master, hidden=hidden):
            _find_in_log(worker, r"(Successfully registered)")
            yield master


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster whose worker shares all files with this machine."""
    with _cluster(tmp_path) as master:
        yield master


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a service."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def cluster_apart(tmp_path: Path, home: Path) -> Iterator[str]:
    """A cluster whose worker has another view of the file system (root, Linux): the service's home
    and the jars that it gives to Spark are empty there."""
    subprocess.run(["make", "-s", "spark-s3"], cwd=_CHECKOUT, check=True, timeout=_LIMIT_S)
    with _cluster(tmp_path, hidden=(home, _JARS)) as master:
        yield master


@contextmanager
def _service(home: Path, master: str, **more: str) -> Iterator[Client]:
    """A service that analyses at a cluster, or in its own process."""
    (home.parent / "secret").write_text(_SECRET)
    env = {"SPECK_SPARK_MASTERS": f"local[1],far={master}", "SPECK_METRICS_S": "0"}
    env |= {"SPECK_SPARK_SECRET_FILE": str(home.parent / "secret"), "SPECK_WATCH_S": "0"}
    with serving(home, [], more={**env, **more}) as served:
        yield Client(served.url)


def _await_analysis(api: Client, master: str, **options: object) -> JsonObject:
    analysis_id = api.analyse(master=master, **options)["id"]

    def find_ended() -> JsonObject | None:
        analysis = api.analysis(analysis_id)
        return analysis if analysis["state"] != "running" else None

    return wait_for(find_ended, limit_s=_LIMIT_S)


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


@pytest.mark.long
def test_a_cluster_that_shares_no_path_analyses_a_dataset_in_s3(
    cluster_apart: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor gets the jars, the endpoint and the credentials from the service's driver."""
    with s3_server() as env:
        for name, value in env.items():  # the cluster runs already, without them
            monkeypatch.setenv(name, value)
        storage = open_s3("s3a://metrics/of-speck", tmp_path / "here")
        sites = [*site("edge-a"), *site("cloud")]
        rows = running(looks=1 + int(2.2 * 3600 / EVERY_S))
        for place in (storage, home / "metrics"):
            dataset(place, rows, [plan()], sites)
        more = {"SPECK_METRICS_URI": storage.uri, "SPECK_SPARK_JARS": str(_JARS)}
        with _service(home, cluster_apart, **more) as api:
            far = _await_analysis(api, "far", window_s=_LONG_S)
        assert [file for file in storage.list_files(UNITS) if is_finished(file)]
    with _service(home, cluster_apart) as api:
        near = _await_analysis(api, "local[1]", window_s=_LONG_S)
    assert far["state"] == "done", far["error"]
    assert near["state"] == "done", near["error"]
    names = ("window", "samples", "jobs", "links", "sites", "ranking", "bottlenecks")
    assert {name: far[name] for name in names} == {name: near[name] for name in names}
    assert far["jobs"][0]["core_s_per_record"] > 0
    (ran,) = (tmp_path / "work").glob("app-*/0/stderr")
    assert "Finished task" in ran.read_text()


@pytest.mark.long
def test_a_cluster_that_cannot_read_the_dataset_is_refused(cluster_apart: str, home: Path) -> None:
    root = dataset(home / "metrics", running(), [plan()], [*site("edge-a"), *site("cloud")])
    with _service(home, cluster_apart) as api:
        far = _await_analysis(api, "far")
        near = _await_analysis(api, "local[1]")
    assert far["state"] == "failed"
    assert far["error"] == (
        f"cannot analyse at {cluster_apart}: its workers cannot read {root}, a folder of this"
        " machine; set SPECK_METRICS_URI to s3a://bucket/folder, hdfs://host/folder or a folder"
        " that they share with the service"
    )
    assert near["state"] == "done"
    assert not list(root.glob(".*.writing"))


_READER = "speck-0a1b2c3d-pass-in"


def _list_arguments(broker: str) -> tuple[str, ...]:
    return (
        *("--job-name", "pass", "--client-id", _READER, "--epoch", "1"),
        *("--source-broker", broker, "--source-topic", "in"),
        *("--sink-broker", broker, "--sink-topic", "out", "--sink-readers", "some"),
        *("--delivery", "exactly_once"),
    )


def _at(master: str, folder: Path) -> dict[str, object]:
    """The settings of a runner whose jobs run there."""
    secret = folder / "secret"
    secret.write_text(_SECRET)
    return {"spark_master": master, "spark_secret_file": secret}


@pytest.mark.long
def test_a_job_runs_at_the_workers_of_a_cluster(cluster: str, tmp_path: Path) -> None:
    came: list[bytes] = []
    with (
        mosquitto(tmp_path / "broker") as broker,
        spark_program("pass_through", tmp_path, **_at(cluster, tmp_path)) as program,
    ):
        side = open_broker("mqtt", Target(broker.address))
        side.reserve(_READER, "in")
        side.reserve("spy", "out")
        program.start(_list_arguments(broker.address))
        side.publish("in", [b"r%d" % number for number in range(20)])
        links = open_links("mqtt", broker.address)
        with links.reader("out", "spy", lambda record: came.append(record.payload), came.append):
            wait_for(lambda: len(came) == 20, lambda: came)
        program.stop()
        side.close()
    assert came == [b"r%d" % number for number in range(20)]
    (ran,) = (tmp_path / "work").glob("app-*/0/stderr")
    assert "Finished task" in ran.read_text()


@pytest.mark.long
def test_a_job_at_workers_that_do_not_see_its_state_is_refused(
    cluster_apart: str, home: Path, tmp_path: Path
) -> None:
    with (
        mosquitto(tmp_path / "broker") as broker,
        spark_program("pass_through", home, **_at(cluster_apart, tmp_path)) as program,
        pytest.raises(AssertionError, match=r"cannot run at spark://.* its workers cannot write"),
    ):
        program.start(_list_arguments(broker.address))
