"""The Python client's `forward` under a runner, as the tests of the job contract start and stop
programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from speck.binding import Artifact, ArtifactKind, SaveProgress, Submission, Target, open_engine
from speck.model.observation import RunState
from tests.channels import LocalChannel
from tests.flink_server import sha256_of
from tests.python_jobs import build_programs
from tests.runners import LocalRunner
from tests.waiting import wait_for


class PythonForward:
    """`speck_programs.forward` as a process; see `tests.job_programs.Program`."""

    def __init__(self, folder: Path) -> None:
        self._runner = LocalRunner(folder / "state")
        self._engine = open_engine("process", Target("", agent=LocalChannel(folder / "state")))
        archive = build_programs(folder)
        self._artifact = Artifact(sha256_of(archive), archive, ArtifactKind.ARCHIVE)
        self._job = ""

    def start(self, args: tuple[str, ...], state: str | None = None) -> None:
        self._job = uuid4().hex
        entry = "speck_programs.forward"
        self._engine.submit(Submission(self._job, "pass", self._artifact, entry, args, state=state))
        self._await(RunState.RUNNING)

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

    def _await(self, state: RunState) -> None:
        wait_for(lambda: self._engine.status(self._job) is state, f"the program to be {state}")


@contextmanager
def python_forward() -> Iterator[PythonForward]:
    """It, ended with the `with`."""
    with TemporaryDirectory() as folder:
        program = PythonForward(Path(folder))
        try:
            yield program
        finally:
            program.close()
