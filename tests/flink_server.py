"""Real Flink for tests: one engine for the session, more when a test must break one."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests

from speck.fog import flink as fog_flink
from speck.fog.flink_conf import FlinkSettings, Runtime
from speck.fog.paths import cache_folder, flink_folder
from speck.fog.process import Process

JOB_SOURCE = Path(__file__).parent / "flink_jobs" / "TrialJob.java"
JOB_CLASS = "TrialJob"
FLINK_1_20 = cache_folder() / "flink-1.20"

_QUICK = {
    # views and metrics as fresh as tests want them; failures that end soon
    "rest.cache.execution-graph.timeout": "50",
    "rest.cache.checkpoint-statistics.timeout": "50",
    "web.refresh-interval": "50",
    "metrics.fetcher.update-interval": "200",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "100ms",
}


@dataclass
class FlinkServer:
    """A running engine: its REST `url`, its folders, its JVMs."""

    engine: fog_flink.Flink
    settings: FlinkSettings

    @property
    def url(self) -> str:
        return self.engine.url

    @property
    def folder(self) -> Path:
        return self.engine.folder

    @property
    def state_dir(self) -> Path:
        """Where checkpoints and savepoints go."""
        return self.engine.state

    @property
    def processes(self) -> dict[str, Process]:
        """JVMs by role: `engine`, or `jobmanager` and `taskmanager`."""
        return dict(self.engine.processes)

    @property
    def process(self) -> Process:
        """The JVM that holds the REST API."""
        return next(iter(self.engine.processes.values()))

    def get(self, path: str, **params: str) -> requests.Response:
        """A bare GET, for tests that look past the binder."""
        return requests.get(self.url + path, params=params, timeout=20)

    def post(self, path: str, body: object) -> requests.Response:
        """A bare POST, for tests that look past the binder."""
        return requests.post(self.url + path, json=body, timeout=20)

    def restart(self, role: str) -> None:
        """kill -9 one JVM, start it again in its old place, wait for all slots."""
        self.engine.processes[role].kill()
        alive = {name: process for name, process in self.processes.items() if process.running}
        settings = replace(self.settings, port=self.engine.port)
        self.engine = fog_flink.start(settings, running=alive)


@contextmanager
def flink_cluster(
    folder: Path,
    slots: int = 8,
    kind: Runtime = "single",
    *,
    config: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Iterator[FlinkServer]:
    """A real Flink for the `with` block, on free loopback ports, everything below `folder`.

    `kind` "single" is one JVM (edge_jobs/runtime), "cluster" a JobManager and a TaskManager.
    `config` is added to config.yaml; `home` is the folder of another Flink than the installed.
    """
    settings = FlinkSettings(
        folder=folder / "engine",
        state=folder / "state",
        slots=slots,
        runtime=kind,
        checkpoint_interval_s=0.3,
        config={**_QUICK, **(config or {})},
        flink=home,
    )
    server = FlinkServer(fog_flink.start(settings), settings)
    try:
        yield server
    finally:
        server.engine.stop()


def build_trial_jar(folder: Path, home: Path | None = None) -> Path:
    """Compile tests/flink_jobs/TrialJob.java against one Flink; needs a JDK."""
    dist = next(iter((home or flink_folder()).glob("lib/flink-dist*.jar")))
    return build_jar(JOB_SOURCE, folder / "trial.jar", str(dist))


def build_jar(source: Path, jar: Path, class_path: str) -> Path:
    """Compile one file of Java and pack its classes into `jar`; needs a JDK."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    short = ["-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1"]  # half of the CPU time
    with tempfile.TemporaryDirectory() as classes:
        compiler = ["javac", *short, "-nowarn", "-Xlint:none", "-cp", class_path]
        subprocess.run([*compiler, "-d", classes, source], check=True)
        subprocess.run(["jar", *short, "--create", "--file", jar, "-C", classes, "."], check=True)
    return jar


def sha256_of(file: Path) -> str:
    """The artifact name of a jar."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def flink_1_20() -> Path:
    """A folder with the jars of Flink 1.20, fetched once into .cache (a 230 MB archive)."""
    if not FLINK_1_20.is_dir():
        unfinished = FLINK_1_20.with_name(f"flink-1.20.{os.getpid()}")
        unfinished.mkdir(parents=True)
        package = "apache-flink-libraries==1.20.5"
        fetch = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", package]
        subprocess.run([sys.executable, "-m", *fetch, "--dest", unfinished], check=True)
        archive = next(unfinished.glob("*.tar.gz"))
        _unpack(archive, unfinished)
        archive.unlink()
        unfinished.rename(FLINK_1_20)
    return FLINK_1_20


_WANTED = ("deps/lib/flink-dist*.jar", "deps/lib/log4j*.jar", "deps/bin/bash-java-utils.jar")


def _unpack(archive: Path, home: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name)
            content = tar.extractfile(member)
            if content is not None and any(name.match(pattern) for pattern in _WANTED):
                target = home / name.parts[-2] / name.name
                target.parent.mkdir(exist_ok=True)
                with target.open("wb") as out:
                    shutil.copyfileobj(content, out)


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkServer]:
    """One real Flink for the whole test session; tests clean up their own jobs."""
    with flink_cluster(tmp_path_factory.mktemp("flink"), slots=8) as server:
        yield server


@pytest.fixture(scope="session")
def trial_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trial job, compiled against the installed Flink."""
    return build_trial_jar(tmp_path_factory.mktemp("trial-job"))
