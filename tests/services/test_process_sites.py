"""Sites whose only engine are programs, or Spark: the service, real agents, runners, brokers and
programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from speck.config import Config
from speck.fog import kafka
from speck.fog.kafka import Kafka
from speck.fog.mosquitto import Mosquitto
from speck.fog.paths import edge_jar
from speck.model.job_rates import JobRates
from speck.model.record import Record
from speck.model.values import JsonObject
from speck.runner.claims import read_claim
from speck.runner.ending import end_programs
from speck.runner.processes import find_mains, find_members
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests.agents import AgentProcess, answering, heard
from tests.mosquitto_server import mosquitto
from tests.process_programs import SPARK_JAR
from tests.python_jobs import ROOT, build_programs, publisher, reading
from tests.waiting import wait_for

SITES = ("edge-a", "edge-b")
DONE = ApplyRequest(wait_s=300.0)
JOBS = ROOT / "edge_jobs/pyspark"


@dataclass
class Land:
    """Two sites; detections go into edge-a's broker, clean ones out of edge-b's, which may be
    Kafka."""

    service: Service
    url: str
    folder: Path
    brokers: dict[str, Mosquitto | Kafka]
    engine: str = "process"
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    runners: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    fed: int = 0

    def start_runner(self, site: str) -> None:
        command = [sys.executable, "-m", "speck.cli", "runner"]
        command += ["--state-folder", str(self.folder / site)]
        command += ["--as", "root"] if os.geteuid() == 0 else []
        if self.engine == "spark":
            command += ["--spark-jar", str(edge_jar(SPARK_JAR)), "--spark-memory-mb", "1536"]
        self.runners[site] = subprocess.Popen(command)

    def apply(self, site: str, **more: Any) -> None:
        program = {"job_path": "speck-programs.pyz", "entry_class": "speck_programs.clean"}
        job: JsonObject = {
            "job_name": "clean",
            "site": site,
            "engine": self.engine,
            **(program if self.engine == "process" else {"job_path": "clean.py"}),
            "source_site": "edge-a",
            "source_topic": "raw",
            "sink_site": "edge-b",
            "sink_topic": "clean",
            **more,
        }
        body = {
            "name": "c",
            "jobs": [job],
            "inputs": [{"site": "edge-a", "topic": "raw"}],
            "outputs": [{"site": "edge-b", "topic": "clean", "client_id": "spy"}],
        }
        answer = self.service.compositions.apply(composition_from_data(body), DONE)
        change = self.service.changes.get(str(answer.change))
        assert answer.state == "done", [each.error for each in change.operations if each.error]

    def find_rates(self) -> JobRates | None:
        """The job's rates, once two samples have all that they follow from."""
        self.service.sampler.poll()
        (rated,) = self.service.sampler.rate_jobs()
        known = rated.rates
        if known.in_rate and known.out_rate and known.checkpoint.bytes:
            return known
        return None

    def find_program(self) -> int:
        """The process id of the job's program."""
        (incarnation,) = self.service.jobs.all()
        site, label = incarnation.site, incarnation.engine_job_id
        claim = read_claim(self.folder / site / "programs" / str(label))
        assert claim is not None
        session = claim[1].session
        assert session is not None
        (main,) = find_mains(find_members(session), session.id)
        return main.pid

    @contextmanager
    def load(self) -> Iterator[None]:
        """Detections come all the time, some of them impossible."""
        over = threading.Event()

        def feed() -> None:
            with publisher(self.brokers["edge-a"].address) as publish:
                while not over.wait(0.02):
                    publish("raw", [_detection(self.fed + 1), b"broken"], 2 * self.fed + 1)
                    self.fed += 1

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
            reached = self.fed
            wait_for(lambda: self.fed > reached + 10, "more records")
        finally:
            over.set()
            thread.join()

    def await_all(self) -> None:
        wanted = {_detection(number) for number in range(1, self.fed + 1)}
        wait_for(
            lambda: {record.payload for record in self.records} >= wanted,
            f"{self.fed} records, each at least once",
        )
        assert {record.payload for record in self.records} == wanted

    @property
    def repeated(self) -> int:
        """What readers of stamps do not recognise as a repeat."""
        return len({record.stamp for record in self.records}) - self.fed


def _detection(number: int) -> bytes:
    fields = {"id": number, "stream": "A1", "time_ms": 1000 * number, "sensor": "A1-03"}
    more = {"vehicle": "v", "speed_mps": 13.2, "length_m": 4.5, "type": "car"}
    return json.dumps({**fields, **more}).encode()


def check_figures(rates: JobRates) -> None:
    """Those of a job that lets every other record through, as of a job in Flink."""
    assert rates.in_rate and rates.out_rate
    assert rates.busy is not None and rates.idle is not None
    assert rates.back_pressured is not None
    assert rates.busy + rates.idle + rates.back_pressured == pytest.approx(1, abs=0.05)
    assert rates.records_in and rates.records_out and rates.bytes_in and rates.bytes_out
    assert rates.records_in > rates.records_out
    assert rates.restarts == 0
    (task,) = rates.tasks
    assert task.is_source and task.is_sink


ENGINES = pytest.mark.parametrize(
    "land",
    [
        "process",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("spark", "process into kafka")),
    ],
    indirect=True,
)


@pytest.fixture
def land(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Land]:
    engine, _, into = getattr(request, "param", "process").partition(" into ")
    with ExitStack() as stack:
        jars = tmp_path / "jars"
        jars.mkdir()
        build_programs(jars)
        kinds = {"edge-a": "mqtt", "edge-b": into or "mqtt"}
        brokers = {s: stack.enter_context(_start(kinds[s], tmp_path / s)) for s in SITES}
        service = Service(Config(home=tmp_path / "home", jar_folders=(jars, JOBS)))
        stack.callback(service.close)
        service.watch.start()
        url = stack.enter_context(answering(service))
        land = Land(service, url, tmp_path / "states", brokers, engine)
        stack.callback(_end, land)
        for site in SITES:
            (land.folder / site).mkdir(parents=True)
            broker = {"kind": kinds[site], "address": brokers[site].address}
            body = {"name": site, "tier": "edge", "spe": {"kind": engine}, "broker": broker}
            service.sites.add(site_from_data(body))
            land.start_runner(site)
            land.agents[site] = AgentProcess(site, url, land.folder / site)
        heard(service, *SITES)
        stack.enter_context(_read(land))
        yield land


def _start(kind: str, folder: Path) -> AbstractContextManager[Mosquitto | Kafka]:
    return kafka.start(folder) if kind == "kafka" else mosquitto(folder)


@contextmanager
def _read(land: Land) -> Iterator[None]:
    with reading(land.brokers["edge-b"].address, "clean") as records:
        land.records = records
        yield


def _end(land: Land) -> None:
    for process in (*land.runners.values(), *(a.process for a in land.agents.values())):
        process.kill()
        process.wait()
    for site in SITES:
        end_programs(land.folder / site)


@ENGINES
@pytest.mark.parametrize(
    "delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"]
)
def test_a_program_moves_under_load_and_nothing_is_lost(land: Land, delivery: str) -> None:
    land.apply("edge-a", delivery=delivery)
    with land.load():
        check_figures(wait_for(land.find_rates, "figures"))
        for site in ("edge-b", "edge-a"):
            land.apply(site, delivery=delivery)
            assert land.service.jobs.get("clean").site == site
        land.apply("edge-a", delivery=delivery, args=["--memory-mb", "1600"])
    land.await_all()
    if delivery == "exactly_once":
        assert land.repeated == 0
    job = land.service.jobs.get("clean")
    assert (job.state, job.attempt) == ("running", 4)
    metrics = wait_for(lambda: land.service.jobs.metrics("clean").metrics, "metrics")
    assert any(name.endswith("numRecordsIn") for name in metrics)
    assert land.service.compositions.delete("c", DONE.wait_s, drop_queues=True).done


@ENGINES
@pytest.mark.parametrize(
    "what",
    ["program", *(pytest.param(each, marks=pytest.mark.long) for each in ("runner", "agent"))],
)
def test_whatever_is_killed_comes_back_and_nothing_is_lost(land: Land, what: str) -> None:
    land.apply("edge-a", delivery="exactly_once")
    before = land.find_program()
    with land.load():
        wait_for(lambda: len(land.records) > 20, "some records")
        kill: dict[str, Callable[[], None]] = {
            "program": lambda: os.kill(before, signal.SIGKILL),
            "runner": lambda: _kill_runner(land),
            "agent": lambda: land.agents["edge-a"].kill(),
        }
        kill[what]()
        reached = len(land.records)
        wait_for(lambda: len(land.records) > reached + 50, "records after the kill")
        if what == "agent":
            land.agents["edge-a"].start()
        heard(land.service, "edge-a")
        if what == "program":
            wait_for(lambda: land.find_program() != before, "another process")
        else:
            assert land.find_program() == before
        land.apply("edge-b", delivery="exactly_once")
    land.await_all()
    assert land.repeated == 0
    assert land.service.jobs.get("clean").attempt == 2, "nothing was started besides"


def _kill_runner(land: Land) -> None:
    runner = land.runners["edge-a"]
    runner.kill()
    runner.wait()
    land.start_runner("edge-a")


@pytest.mark.long
def test_a_program_that_cannot_start_leaves_the_old_one(land: Land, tmp_path: Path) -> None:
    (tmp_path / "jars/broken.py").write_text("import sys\nsys.exit('no such sensor')\n")
    land.apply("edge-a")
    broken = {"job_path": "broken.py", "entry_class": ""}
    with pytest.raises(AssertionError, match="no such sensor"):
        land.apply("edge-a", **broken)
    with land.load():
        wait_for(lambda: land.service.jobs.get("clean").state == "running", "the old one")
    land.await_all()
