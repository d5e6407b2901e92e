"""The binder of kind `memory` for engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from binders.flink.artifacts import CALIBRATION, judge_jar
from binders.flink.layout import LAYOUT
from binders.memory.slots import MemoryJob, SlotPool, parse_wiring
from binders.memory.world import World
from speck.binding import (
    AddressRules,
    Artifact,
    ArtifactKind,
    CalibrationProgram,
    Checkpointing,
    EngineCapability,
    EngineEnd,
    JobException,
    SavedState,
    SaveProgress,
    StateLayout,
    Submission,
    Target,
    Trial,
    Upload,
)
from speck.errors import DuplicateJobError, EngineRefusedError
from speck.model.addresses import HTTP
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, JobMeasure, PlanNode, TaskMeasure
from speck.model.observation import EngineJob, EngineView, RunState, Slots


class MemoryEngine:
    """An engine in this process; tests control it by `World.current().engine(address)`.

    Like Flink, it refuses an id that was used before even if that job has ended, runs a job only
    once all its slots are available, and fails a savepoint of a job that does not run.
    """

    simulated = True
    capabilities: frozenset[EngineCapability]
    addresses: AddressRules | None = AddressRules(HTTP, "http://host:8081", has_path=True)
    artifact_kinds = frozenset({ArtifactKind.JAR})
    calibration: CalibrationProgram | None = CALIBRATION
    layout: StateLayout | None = LAYOUT
    judge = staticmethod(judge_jar)

    def __init__(self, target: Target) -> None:
        self._world = World.current()
        self._address = target.address
        self._engine.on_request = target.on_request
        self.capabilities = self._engine.capabilities

    @property
    def _engine(self) -> SlotPool:
        """What is at the address now."""
        return self._world.engine(self._address)

    def view(self) -> EngineView:
        """Return all jobs, also ended ones; a job has one task for each slot."""
        with self._call("view"):
            jobs = {
                job.id: EngineJob(
                    job.id,
                    job.submission.job_name,
                    job.state,
                    job.slots if job.state is RunState.RUNNING else 0,
                    job.slots,
                )
                for job in self._engine.jobs.values()
            }
            return EngineView("memory", Slots(self._engine.total, self._engine.free), jobs)

    def jobs(self) -> dict[str, EngineJob]:
        """The jobs of `view`; its calls are counted as calls of `view`."""
        return dict(self.view().jobs)

    def upload(self, artifact: Artifact) -> None:
        """Store the hash; the file must exist."""
        sha256, file = artifact.sha256, artifact.file
        with self._call("upload", sha256):
            if sha256 not in self._engine.jars and not file.is_file():
                raise EngineRefusedError(f"cannot upload {file}: no such file")
            self._engine.jars.setdefault(sha256, self._world.now_ms())

    def uploads(self) -> list[Upload]:
        """Return the hashes that were uploaded."""
        with self._call("uploads"):
            return [Upload(sha256, at_ms) for sha256, at_ms in self._engine.jars.items()]

    def delete_upload(self, sha256: str) -> None:
        """Forget the hash."""
        with self._call("delete_upload", sha256):
            self._engine.jars.pop(sha256, None)

    def try_main(self, submission: Submission) -> Trial:
        """Refuse an incarnation whose jar does not exist; it shows what `SlotPool.trial` says."""
        with self._call("try_main", submission.engine_job_id):
            self._require_jar(submission)
            return replace(self._engine.trial, parallelism=self._engine.parallelism_of(submission))

    def submit(self, submission: Submission) -> str | None:
        """Start the incarnation, from its savepoint if it has one; returns `SlotPool.late_failure`
        of its `main`."""
        job_id = submission.engine_job_id
        with self._call("submit", job_id):
            if job_id in self._engine.jobs:
                raise DuplicateJobError(
                    f"cannot start {submission.job_name}: duplicate job id {job_id}"
                )
            self._require_jar(submission)
            job = MemoryJob(self._engine, submission, parse_wiring(submission.args))
            if submission.state is not None:
                if not self._engine.readable(submission.state):
                    raise EngineRefusedError(
                        f"cannot start {submission.job_name}: no state at {submission.state}"
                    )
                saved = self._world.saved[submission.state]
                job.ledger, job.epoch = saved.ledger.copy(), saved.epoch
                job.newest = SavedState(0, submission.state, 0, 0, True)
            self._engine.jobs[job_id] = job
            self._engine.schedule()
            return self._engine.late_failure

    def resend(self, submission: Submission) -> None:
        """Deliver again what the broker does not have of the messages that the incarnation had
        published, all at once."""
        job_id = submission.engine_job_id
        with self._call("resend", job_id):
            if job_id in self._engine.jobs:
                raise DuplicateJobError(f"cannot resend: duplicate job id {job_id}")
            saved = self._world.saved.get(submission.state or "")
            if saved is None:
                raise EngineRefusedError(f"cannot resend: no state at {submission.state}")
            job = MemoryJob(self._engine, submission, parse_wiring(submission.args))
            job.state, job.epoch = RunState.FINISHED, saved.epoch
            job.numbers.update(saved.numbers)
            self._engine.jobs[job_id] = job
            self._world.resend(job)

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        """List the id as failed without starting anything."""
        with self._call("fence", engine_job_id):
            if engine_job_id in self._engine.jobs:
                raise DuplicateJobError(f"cannot fence {engine_job_id}: the id is in use")
            nothing = Submission(engine_job_id, "fence", Artifact("", Path(), artifact), "", ())
            fenced = MemoryJob(self._engine, nothing, None, state=RunState.FAILED)
            self._engine.jobs[engine_job_id] = fenced

    def status(self, engine_job_id: str) -> RunState | None:
        """Return the state; None if the engine does not know the id."""
        with self._call("status", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            return job.state if job else None

    def has_finished(self, engine_job_id: str) -> bool:
        """Whether `SlotPool.finish` has ended it."""
        with self._call("has_finished", engine_job_id):
            job = self._find_job("read the end of", engine_job_id)
            return job.state is RunState.FINISHED and not job.stopped

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Acknowledge the taken messages, save the state, and end as FINISHED."""
        with self._call("stop", engine_job_id):
            job = self._live("stop", engine_job_id, trigger_id)
            if trigger_id not in job.savepoints:
                job.stopping = trigger_id
                self._begin_savepoint(job, folder, trigger_id)

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Save the state; the job keeps running."""
        with self._call("save", engine_job_id):
            job = self._live("take a savepoint of", engine_job_id, trigger_id)
            if trigger_id not in job.savepoints:
                self._begin_savepoint(job, folder, trigger_id)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        """Note the request: checkpoints are taken by `World.pump`."""
        with self._call("checkpoint", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            if job is not None:
                job.checkpoint_requests[trigger_id] = job.checkpoint_id

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Done once a checkpoint has completed since the request."""
        with self._call("checkpoint_progress", engine_job_id):
            job = self._find_job("read progress of a checkpoint of", engine_job_id)
            if trigger_id not in job.checkpoint_requests:
                raise EngineRefusedError(
                    f"cannot read progress of checkpoint {trigger_id} of {engine_job_id}: unknown"
                )
            return SaveProgress(job.checkpoint_id > job.checkpoint_requests[trigger_id])

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Return the progress; done at once unless a test holds savepoints."""
        with self._call("save_progress", engine_job_id):
            job = self._find_job("read progress of a savepoint of", engine_job_id)
            if trigger_id not in job.savepoints:
                raise EngineRefusedError(
                    f"cannot read progress of savepoint {trigger_id} of {engine_job_id}: unknown"
                )
            return job.savepoints[trigger_id]

    def cancel(self, engine_job_id: str) -> None:
        """Cancel; messages taken since the last checkpoint go back to the session."""
        with self._call("cancel", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            if job is not None and not job.state.terminal:
                job.end(RunState.CANCELED)
                self._engine.schedule()

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        """Return the newest checkpoint or savepoint of a job that the engine knows."""
        with self._call("newest_state", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            if job is None:
                raise EngineRefusedError(f"cannot find the state of {engine_job_id}: no such job")
            if job.newest is not None and job.newest.location not in self._world.saved:
                raise EngineRefusedError(
                    f"cannot find the state of {engine_job_id}: its checkpoints were discarded"
                )
            return job.newest

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """Report the slot pool's `interval_s`; checkpoints are taken by `World.pump`."""
        with self._call("checkpointing", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            if job is None:
                return None
            newest = job.newest
            if newest is None or not newest.number:
                return Checkpointing(self._engine.interval_s)
            folder = None if newest.on_request else newest.location.rpartition("/")[0]
            return Checkpointing(self._engine.interval_s, newest.number, newest.at_ms, folder)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Return the failures that `SlotPool.fail` and `crash` have recorded."""
        with self._call("exceptions", engine_job_id):
            job = self._engine.jobs.get(engine_job_id)
            if job is None:
                return []
            message = self._engine.crash_of(job)
            if message is not None and job.state is RunState.RESTARTING:
                self._engine.crash(job.id, message)
            return list(job.exceptions)

    def last_end(self) -> EngineEnd | None:
        """Return the slot pool's `last_end`, which a test sets."""
        with self._call("last_end"):
            return self._engine.last_end

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        """Return a plan with one node."""
        with self._call("job_plan", engine_job_id):
            job = self._find_job("show the plan of", engine_job_id)
            return (PlanNode(job.id, job.submission.entry, job.slots),)

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Return the messages taken and sent, under the connector's names."""
        with self._call("metrics", engine_job_id):
            job = self._find_job("read the metrics of", engine_job_id)
            return {
                "source.numRecordsIn": float(job.ledger.messages),
                "sink.numRecordsSend": float(job.sent),
            }

    def is_connected(self, engine_job_id: str) -> bool | None:
        """Not reported: a job is connected as soon as it runs."""
        with self._call("is_connected", engine_job_id):
            self._find_job("read the metrics of", engine_job_id)
            return None

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Count the messages that running jobs have taken and sent; a test may set other
        `measures`."""
        with self._call("measure"):
            jobs = {
                job_id: self._engine.measures.get(job_id) or _measure(self._engine.jobs[job_id])
                for job_id in engine_job_ids
                if job_id in self._engine.jobs
                and self._engine.jobs[job_id].state is RunState.RUNNING
            }
            return EngineMeasures(jobs, self._engine.total, self._engine.free)

    def check(self) -> list[Finding]:
        """Return the `findings` that a test has set."""
        with self._call("check"):
            return list(self._engine.findings)

    def state_folder(self) -> str | None:
        """Always None: states are in memory."""
        return None

    def close(self) -> None:
        """Does nothing: there are no connections."""

    def _call(self, kind: str, subject: str = "") -> AbstractContextManager[None]:
        return self._engine.call(kind, subject)

    def _require_jar(self, submission: Submission) -> None:
        """Take the file again if the jar was lost, as every engine does."""
        if submission.artifact.sha256 not in self._engine.jars:
            if not submission.artifact.file.is_file():
                raise EngineRefusedError(
                    f"cannot start {submission.job_name}: no jar {submission.artifact.sha256},"
                    f" and no file {submission.artifact.file}"
                )
            self._engine.jars[submission.artifact.sha256] = self._world.now_ms()

    def _find_job(self, what: str, engine_job_id: str) -> MemoryJob:
        job = self._engine.jobs.get(engine_job_id)
        if job is None:
            raise EngineRefusedError(f"cannot {what} job {engine_job_id}: no such job")
        return job

    def _live(self, what: str, engine_job_id: str, trigger_id: str) -> MemoryJob:
        """Return a job of which a savepoint can be taken, or has been with the same trigger."""
        job = self._find_job(what, engine_job_id)
        if job.state.terminal and trigger_id not in job.savepoints:
            raise EngineRefusedError(f"cannot {what} job {engine_job_id}: it is {job.state}")
        return job

    def _begin_savepoint(self, job: MemoryJob, directory: str | None, trigger_id: str) -> None:
        path = f"{(directory or self._engine.storage).rstrip('/')}/{trigger_id}"
        job.savepoints[trigger_id] = SaveProgress(False)
        if self._engine.hold_savepoints:
            self._engine.held.append((job, trigger_id, path))
        else:
            self._engine.save(job, trigger_id, path)


def _measure(job: MemoryJob) -> JobMeasure:
    """One task that is source and sink, without the times of its thread."""
    counts = {"records_in": job.ledger.messages, "records_out": job.sent}
    task = TaskMeasure(job.id, job.submission.entry, 0, 1, True, True, **counts)
    newest = job.newest.number if job.newest else None
    return JobMeasure(job.id, (task,), restarts=0, checkpoint_id=newest)
