"""Programs that keep the job contract, as the tests of the contract start and stop them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from uuid import uuid4

from speck.binding import Artifact, ArtifactKind, SaveProgress, Submission, Target, open_engine
from speck.fog.paths import edge_jar
from speck.model.observation import RunState
from tests.flink_server import FlinkServer, sha256_of
from tests.waiting import wait_for


class Program(Protocol):
    """A program that passes on what it reads. A state is whatever it is started with again."""

    def start(self, args: tuple[str, ...], state: str | None = None) -> None:
        """Start it by the contract's arguments, and wait until it runs."""

    def stop(self) -> str:
        """End it in good order; returns its state."""

    def kill(self) -> str:
        """End it at once; returns its newest state."""

    def resend(self, args: tuple[str, ...], state: str) -> None:
        """Start its sink alone from the state in which it ended, and wait until that has ended."""

    def close(self) -> None:
        """End whatever still runs."""


class FlinkPassThrough:
    """`io.speck.jobs.PassThrough` on a real Flink, with the connector in its jar."""

    def __init__(self, server: FlinkServer) -> None:
        self._server = server
        self._engine = open_engine("flink", Target(server.url))
        self._job: str | None = None

    def start(self, args: tuple[str, ...], state: str | None = None) -> None:
        submission = self._describe(args, state)
        self._engine.submit(submission)
        self._job = job = submission.engine_job_id
        wait_for(lambda: self._engine.status(job) is RunState.RUNNING, "the job to run")

    def _describe(self, args: tuple[str, ...], state: str | None) -> Submission:
        jar = edge_jar("speck-jobs-fat.jar")
        artifact = Artifact(sha256_of(jar), jar, ArtifactKind.JAR)
        self._engine.upload(artifact)
        entry = "io.speck.jobs.PassThrough"
        return Submission(uuid4().hex, "contract", artifact, entry, args, state=state)

    def stop(self) -> str:
        job, trigger = self._running(), uuid4().hex
        self._engine.stop(job, f"file://{self._server.state_dir}/{uuid4().hex}", trigger)

        def look() -> SaveProgress | None:
            progress = self._engine.save_progress(job, trigger)
            return progress if progress.done else None

        progress = wait_for(look, "the savepoint")
        assert progress.location is not None, progress
        self._await_end(job)
        return progress.location

    def kill(self) -> str:
        job = self._running()
        state = wait_for(lambda: self._engine.newest_state(job), "a state")
        self._engine.cancel(job)
        self._await_end(job)
        newest = self._engine.newest_state(job)
        return (newest or state).location

    def resend(self, args: tuple[str, ...], state: str) -> None:
        submission = self._describe(args, state)
        self._engine.resend(submission)
        self._job = job = submission.engine_job_id
        wait_for(lambda: self._engine.status(job) is RunState.FINISHED, "the sink to end")
        self._job = None

    def close(self) -> None:
        if self._job is not None:
            self._engine.cancel(self._job)
            self._await_end(self._job)
        self._engine.close()

    def _running(self) -> str:
        assert self._job is not None, "it was not started"
        return self._job

    def _await_end(self, job: str) -> None:
        wait_for(
            lambda: (state := self._engine.status(job)) is None or state.terminal,
            "the job to end",
        )
        self._job = None


@contextmanager
def flink_pass_through(server: FlinkServer) -> Iterator[Program]:
    """It, ended with the `with`."""
    program = FlinkPassThrough(server)
    try:
        yield program
    finally:
        program.close()
