"""Programs under a runner that pass records on, as the tests of the job contract start and stop
them: one of the Python client, and one of PySpark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from speck.binding import Artifact, ArtifactKind, SaveProgress, Submission, Target, open_engine
from speck.fog.paths import edge_jar
from speck.model.observation import RunState
from tests.channels import LocalChannel
from tests.flink_server import sha256_of
from tests.python_jobs import ROOT, build_programs
from tests.runners import LocalRunner
from tests.waiting import wait_for

SPARK_JAR = "speck-spark-connector.jar"
_SPARK_S = 600.0
"""A session on a busy machine takes long to start."""


@dataclass(frozen=True)
class Kind:
    """What is started: on an engine of which kind, from what."""

    engine: str
    artifact: Artifact
    entry: str = ""
    start_s: float = 60.0


class SupervisedProgram:
    """A program under a runner of its own; see `tests.job_programs.Program`."""

    def __init__(self, folder: Path, kind: Kind, **settings: object) -> None:
        has_spark = kind.engine == "spark"
        jar = edge_jar(SPARK_JAR) if has_spark else None
        self._runner = LocalRunner(
            folder / "state", spark_jar=jar, spark_memory_mb=1536, **settings
        )
        self._engine = open_engine(kind.engine, Target("", agent=LocalChannel(folder / "state")))
        self._kind, self._job = kind, ""

    def start(self, args: tuple[str, ...], state: str | None = None) -> None:
        self._engine.submit(self._describe(args, state))
        self._await(RunState.RUNNING, self._kind.start_s)

    def resend(self, args: tuple[str, ...], state: str) -> None:
        self._engine.resend(self._describe(args, state))
        self._await(RunState.FINISHED, self._kind.start_s)

    def _describe(self, args: tuple[str, ...], state: str | None) -> Submission:
        self._job, kind = uuid4().hex, self._kind
        return Submission(self._job, "pass", kind.artifact, kind.entry, args, state=state)

    def stop(self) -> str:
        trigger = uuid4().hex
        self._engine.stop(self._job, None, trigger)

        def look() -> SaveProgress | None:
            progress = self._engine.save_progress(self._job, trigger)
            return progress if progress.done else None

        progress = wait_for(look, "the state")
        assert progress.location is not None, progress
        return progress.location

    def kill(self) -> str:
        wait_for(lambda: self._engine.newest_state(self._job), "a state")
        self._engine.cancel(self._job)
        self._await(RunState.CANCELED)
        newest = self._engine.newest_state(self._job)
        assert newest is not None
        return newest.location

    def close(self) -> None:
        self._runner.stop()

    def _await(self, state: RunState, within_s: float = 60.0) -> None:
        def look() -> bool:
            now = self._engine.status(self._job)
            assert now is not RunState.FAILED, self._engine.exceptions(self._job)
            return now is state

        wait_for(look, f"the program to be {state}", within_s)


@contextmanager
def python_forward() -> Iterator[SupervisedProgram]:
    """`speck_programs.forward` of the Python client as a process, ended with the `with`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        archive = build_programs(folder)
        artifact = Artifact(sha256_of(archive), archive, ArtifactKind.ARCHIVE)
        yield from _run(folder, Kind("process", artifact, "speck_programs.forward"))


@contextmanager
def spark_program(
    name: str, parent: Path | None = None, **settings: object
) -> Iterator[SupervisedProgram]:
    """`edge_jobs/pyspark/<name>.py` with Spark, ended with the `with`; `settings` are the runner's,
    whose state is in a folder of `parent`."""
    program = ROOT / f"edge_jobs/pyspark/{name}.py"
    artifact = Artifact(sha256_of(program), program, ArtifactKind.PYFILE)
    with TemporaryDirectory(dir=parent) as folder:
        yield from _run(Path(folder), Kind("spark", artifact, start_s=_SPARK_S), **settings)


def _run(folder: Path, kind: Kind, **settings: object) -> Iterator[SupervisedProgram]:
    program = SupervisedProgram(folder, kind, **settings)
    try:
        yield program
    finally:
        program.close()
