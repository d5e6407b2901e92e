"""How the contract's tests reach each engine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Protocol, cast
from uuid import uuid4

import pytest

from binders.memory import World
from speck.binding import (
    Artifact,
    ArtifactKind,
    EnginesBeside,
    SaveProgress,
    StreamEngine,
    Submission,
    Target,
    artifact_kinds,
    open_engine,
)
from speck.errors import UnreachableError
from speck.fog.paths import edge_jar
from speck.model.measurement import TIMES
from speck.model.observation import RunState
from tests.channels import LocalChannel
from tests.flink_server import JOB_CLASS, FlinkServer, sha256_of
from tests.process_programs import SPARK_JAR
from tests.runners import PROGRAMS, LocalRunner
from tests.waiting import wait_for


class Bench(Protocol):
    """An engine seen from the other side."""

    slots: int
    jar: Path
    figures: frozenset[str]
    """What it measures of a job, and of itself."""
    wavering: frozenset[str]
    """Of these, what may fall by a moment."""

    def open(self) -> StreamEngine: ...

    def open_absent(self) -> StreamEngine:
        """A binder for an address where nothing answers."""

    def work(self) -> None:
        """Let jobs take checkpoints, if they do not by themselves."""

    def folder(self) -> str:
        """A folder of its own for a savepoint."""

    def bounded(self) -> tuple[str, ...]:
        """The arguments of a job whose sources end soon."""


class MemoryBench:
    slots = 8
    figures = frozenset({"records_in", "records_out"})
    wavering = frozenset[str]()

    def __init__(self, jar: Path) -> None:
        self.world = World.reset(slots=self.slots)
        self.jar = jar
        jar.write_bytes(b"a jar")

    def open(self) -> StreamEngine:
        return open_engine("memory", Target("http://site:8081"))

    def open_absent(self) -> StreamEngine:
        self.world.engine("http://absent:8081").unreachable = True
        return open_engine("memory", Target("http://absent:8081"))

    def work(self) -> None:
        self.world.pump()

    def folder(self) -> str:
        return f"shared:/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        self.world.engine("http://site:8081").bounded.add("trial")
        return ()


class FlinkBench:
    figures = frozenset({*TIMES, "cores", "engine_cpu_ms", "memory_bytes"})
    # what is neither idle nor back-pressured: an idle moment counts as busy until it has ended
    wavering = frozenset({"busy_ms"})

    def __init__(self, server: FlinkServer, jar: Path) -> None:
        self.server = server
        self.slots = server.settings.slots
        self.jar = jar

    def open(self) -> StreamEngine:
        return open_engine("flink", Target(self.server.url))

    def open_absent(self) -> StreamEngine:
        return open_engine("flink", Target("http://127.0.0.1:1", timeout_s=2.0))

    def work(self) -> None:
        """Flink's jobs work by themselves."""

    def folder(self) -> str:
        return f"file://{self.server.state_dir}/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "20")


class SimulatedBench:
    """The real binder, connected to bench/simulated_flink.py."""

    slots = 8
    figures = frozenset[str]()
    wavering = frozenset[str]()

    def __init__(self, url: str, jar: Path) -> None:
        self.url = url
        self.jar = jar
        jar.write_bytes(b"a jar")

    def open(self) -> StreamEngine:
        return open_engine("flink", Target(self.url))

    def open_absent(self) -> StreamEngine:
        return open_engine("flink", Target("http://127.0.0.1:1", timeout_s=2.0))

    def work(self) -> None:
        """Its checkpoints follow from the clock."""

    def folder(self) -> str:
        return f"file:///state/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        raise NotImplementedError("its jobs run until they are stopped")


class SilentChannel:
    def status(self) -> dict[str, Any]:
        raise UnreachableError("cannot reach the agent of absent: it is silent")

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        return self.status()

    def store(self, artifact: Artifact) -> None:
        self.status()


class LoomBench:
    """A third party's engine behind the agent of its site."""

    slots = 8
    figures = frozenset[str]()
    wavering = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        from loomcanal.runner import LoomRunner

        self.runner = LoomRunner(folder / "state", self.slots)
        self.channel = LocalChannel(folder / "state")
        self._folder = folder
        self.jar = folder / "pattern.txt"
        self.jar.write_text("weave count")

    def open(self) -> StreamEngine:
        return open_engine("loom", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("loom", Target("", timeout_s=2.0, agent=SilentChannel()))

    def work(self) -> None:
        """It takes steps by itself."""

    def folder(self) -> str:
        return "its states stay where they are"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "5")

    def restart(self) -> None:
        """Start it again after it has died."""
        from loomcanal.runner import LoomRunner

        self.runner = LoomRunner(self._folder / "state", self.slots)


class ProcessBench:
    """Programs under a runner, behind the agent of its site."""

    slots = 8
    figures = frozenset(
        (
            *(*TIMES, "cpu_ms", "records_in", "records_out", "checkpoint_bytes"),
            *("cores", "engine_cpu_ms", "memory_bytes"),
        )
    )
    wavering = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        self.runner = LocalRunner(folder / "state", self.slots)
        self.channel = LocalChannel(folder / "state")
        self.jar = folder / "stepping.py"
        shutil.copy(PROGRAMS / "stepping.py", self.jar)

    def open(self) -> StreamEngine:
        return open_engine("process", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("process", Target("", timeout_s=2.0, agent=SilentChannel()))

    def work(self) -> None:
        """Programs work by themselves."""

    def folder(self) -> str:
        return "states stay where they are"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "5")


class SparkBench(ProcessBench):
    """Programs in PySpark under a runner, each with a session of its own."""

    slots = 2
    figures = ProcessBench.figures - {"records_out"}  # the program has no link

    def __init__(self, folder: Path, program: str) -> None:
        jar = edge_jar(SPARK_JAR)
        settings = {"spark_jar": jar, "spark_memory_mb": 1536}
        self.runner = LocalRunner(folder / "state", self.slots, **settings)
        self.channel = LocalChannel(folder / "state")
        self.jar = folder / program
        shutil.copy(PROGRAMS / program, self.jar)

    def open(self) -> StreamEngine:
        return open_engine("spark", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("spark", Target("", timeout_s=2.0, agent=SilentChannel()))


class BesideBench(MemoryBench):
    """The memory engine, with a loom beside it: for all of these jobs nothing is different."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "trial.jar")
        self.loom = LoomBench(folder)
        self.runner = self.loom.runner

    def open(self) -> StreamEngine:
        main, takes = super().open(), artifact_kinds("memory")
        return cast(StreamEngine, EnginesBeside(main, self.loom.open(), takes))

    def silence(self, which: str) -> None:
        """Let one of them not answer the next time an id is to be fenced."""
        lost = UnreachableError("cannot reach it: it is silent")
        if which == "main":
            self.world.engine("http://site:8081").refuse("fence", 1, lost)
        else:
            self.loom.channel.lost.append(lost)

    def open_absent(self) -> StreamEngine:
        main, takes = super().open_absent(), artifact_kinds("memory")
        return cast(StreamEngine, EnginesBeside(main, self.loom.open_absent(), takes))

    def away(self, which: str) -> StreamEngine:
        """The two, of which one does not answer."""
        main = super().open_absent() if which == "main" else super().open()
        other = self.loom.open_absent() if which == "other" else self.loom.open()
        return cast(StreamEngine, EnginesBeside(main, other, artifact_kinds("memory")))


REPEATED = (
    *("loom", "memory with a loom beside it", "flink in two JVMs", "flink 1.20", "spark"),
    "process",  # quick: tests/services/test_process_sites.py
)

WHOLE = (
    *("memory", "flink"),
    *(pytest.param(kind, marks=pytest.mark.long) for kind in REPEATED),
)


def submission(
    bench: Bench,
    *args: str,
    job: str | None = None,
    parallelism: int = 1,
    savepoint: str | None = None,
) -> Submission:
    is_program = bench.jar.suffix == ".py"
    kind = ArtifactKind.PYFILE if is_program else ArtifactKind.JAR
    return Submission(
        engine_job_id=job or uuid4().hex,
        job_name="trial",
        artifact=Artifact(sha256_of(bench.jar), bench.jar, kind),
        entry="" if is_program else JOB_CLASS,
        args=("--job-name", "trial", *args),
        parallelism=parallelism,
        state=savepoint,
    )


def becomes(engine: StreamEngine, job: str, state: RunState) -> None:
    wait_for(lambda: engine.status(job) is state, f"job {job} to be {state}")


def run(engine: StreamEngine, desired: Submission) -> str:
    engine.submit(desired)
    becomes(engine, desired.engine_job_id, RunState.RUNNING)
    return desired.engine_job_id


def await_finish(engine: StreamEngine, job: str, trigger: str) -> SaveProgress:
    def look() -> SaveProgress | None:
        progress = engine.save_progress(job, trigger)
        return progress if progress.done else None

    return wait_for(look, "the savepoint")


def stop(bench: Bench, engine: StreamEngine, job: str) -> str:
    trigger = uuid4().hex
    engine.stop(job, bench.folder(), trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.failure is None
    assert progress.location is not None
    becomes(engine, job, RunState.FINISHED)
    return progress.location
