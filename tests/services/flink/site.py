"""A real Flink with a binder on it and the trial job."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from binders.flink.engine import FlinkEngine
from speck.binding import Artifact, ArtifactKind, SaveProgress, Submission, Target
from speck.model.observation import RunState
from tests.flink_server import JOB_CLASS, FlinkServer, sha256_of
from tests.waiting import wait_for


class Site:
    """A Flink, a binder on it, and the trial job."""

    def __init__(self, server: FlinkServer, jar: Path):
        self.server = server
        self.jar = jar
        self.engine = FlinkEngine(Target(server.url))

    def submission(
        self, *args: str, job: str | None = None, width: int = 1, savepoint: str | None = None
    ) -> Submission:
        return Submission(
            engine_job_id=job or uuid4().hex,
            job_name="trial",
            artifact=Artifact(sha256_of(self.jar), self.jar, ArtifactKind.JAR),
            entry=JOB_CLASS,
            args=("--job-name", "trial", *args),
            parallelism=width,
            state=savepoint,
        )

    def start(self, *args: str, **options: Any) -> str:
        desired = self.submission(*args, **options)
        self.engine.submit(desired)
        return desired.engine_job_id

    def run(self, *args: str, **options: Any) -> str:
        job = self.start(*args, **options)
        self.becomes(job, RunState.RUNNING)
        return job

    def becomes(self, job: str, state: RunState) -> None:
        wait_for(lambda: self.engine.status(job) is state, f"{job} to be {state}")

    def folder(self) -> Path:
        return self.server.state_dir / uuid4().hex

    def finished(self, job: str, trigger: str) -> SaveProgress:
        def look() -> SaveProgress | None:
            progress = self.engine.save_progress(job, trigger)
            return progress if progress.done else None

        return wait_for(look, "the savepoint")

    def stop(self, job: str) -> SaveProgress:
        trigger = uuid4().hex
        self.engine.stop(job, f"file://{self.folder()}", trigger)
        return self.finished(job, trigger)

    def jar_id(self) -> str:
        """The trial jar's id, uploading it when it is not there."""
        self.engine.upload(Artifact(sha256_of(self.jar), self.jar, ArtifactKind.JAR))
        return self.jar_ids()[0]

    def jar_ids(self) -> list[str]:
        name = f"{sha256_of(self.jar)}.jar"
        files = self.server.get("/jars").json()["files"]
        return [jar["id"] for jar in files if jar["name"] == name]

    def newest_folder(self, job: str) -> int:
        """The highest n of the job's chk-n folders that are complete."""
        folder = self.server.state_dir / "checkpoints" / job
        return max(
            (int(path.parent.name[4:]) for path in folder.glob("chk-*/_metadata")), default=0
        )

    def tidy(self) -> None:
        for job in self.engine.view().jobs.values():
            if not job.state.terminal:
                self.engine.cancel(job.engine_job_id)
        wait_for(lambda: self._all_free(), "free slots")

    def _all_free(self) -> bool:
        slots = self.engine.view().slots
        return slots is not None and slots.free == slots.total
