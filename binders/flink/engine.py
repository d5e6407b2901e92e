"""The Flink binder: speck's engine contract in terms of Flink's REST API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from binders.flink import answers
from binders.flink import check as checks
from binders.flink.artifacts import CALIBRATION, judge_jar
from binders.flink.configuration import Configuration
from binders.flink.counters import read_counters
from binders.flink.ends import read_last_end
from binders.flink.fence_jar import make_fence
from binders.flink.jars import JarStore
from binders.flink.layout import LAYOUT
from binders.flink.mains import Mains
from binders.flink.measuring import Measuring
from binders.flink.rest import FlinkRest, NoAnswerInTimeError, RefusedAnswer
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
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    MainTimeoutError,
    TransientError,
    UnreachableError,
)
from speck.model.addresses import HTTP
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, PlanNode
from speck.model.observation import EngineJob, EngineView, RunState

UPLOAD_S = 60.0
"""The least time limit of an upload."""

CHECK_S = 15.0
"""The time limit of all requests of a check together."""


class FlinkEngine:
    """One Flink cluster at `target.address` (http[s]://host:port of its REST API)."""

    capabilities = frozenset(EngineCapability) - {EngineCapability.MEMORY}  # a machine's alone
    addresses: AddressRules | None = AddressRules(HTTP, "http://host:8081", has_path=True)
    artifact_kinds = frozenset({ArtifactKind.JAR})
    calibration: CalibrationProgram | None = CALIBRATION
    layout: StateLayout | None = LAYOUT
    judge = staticmethod(judge_jar)

    def __init__(self, target: Target):
        self._rest = FlinkRest(
            target.address, target.timeout_s, target.on_request, target.credentials
        )
        self._timeout_s = target.timeout_s
        self._jars = JarStore(self._rest, max(UPLOAD_S, target.timeout_s))
        self._mains = Mains(self._rest, self._jars, target.main_timeout_s)
        self._measuring = Measuring(self._rest)
        self._configuration = Configuration(self._rest)

    def view(self) -> EngineView:
        """Version, slots and every job in two requests at once. Raises Unreachable-,
        TransientError."""
        with self._translate_errors("poll the engine"):
            return answers.engine_view(*self._rest.get_both("/overview", "/jobs/overview"))

    def jobs(self) -> Mapping[str, EngineJob]:
        """Every job in one request. Raises Unreachable-, TransientError."""
        with self._translate_errors("list the engine's jobs"):
            return answers.engine_jobs(self._rest.get("/jobs/overview"))

    def upload(self, artifact: Artifact) -> None:
        """Upload each content once, also for concurrent calls. Raises SpeckErrors."""
        with self._translate_errors(f"upload {artifact.file.name}"):
            self._jars.put(artifact.file, artifact.sha256)

    def uploads(self) -> list[Upload]:
        """Return the jars named by a SHA-256; of several with one content the newest."""
        with self._translate_errors("list the engine's jars"):
            newest = {jar.sha256: jar.uploaded_ms for jar in self._jars.all()}
            return [Upload(sha256, at_ms) for sha256, at_ms in newest.items()]

    def delete_upload(self, sha256: str) -> None:
        """Delete every jar of that name: an upload whose answer was lost is there twice."""
        with self._translate_errors(f"delete the jar {sha256[:12]}"):
            self._jars.delete(sha256)

    def try_main(self, submission: Submission) -> Trial:
        """Run `main` without starting anything. Raises EngineRefusedError with its failure.

        Flink ends `main` by what `execute()` throws; one that catches that looks as if it had never
        called it."""
        try:
            with self._translate_errors(f"try main of {submission.job_name}"):
                answer = self._mains.run(submission, "plan")
                return Trial(parallelism=answers.highest_parallelism(answer["plan"]))
        except EngineRefusedError as error:
            cause = error.__cause__
            if isinstance(cause, RefusedAnswer) and cause.refusal.built_nothing:
                return Trial(has_built=False)
            raise

    def submit(self, submission: Submission) -> str | None:
        """Start the incarnation; returns the failure of a `main` that has started it.

        Raises DuplicateJobError if the engine knows the id, running or ended (also after a
        refused savepoint, which uses the id up), MainTimeoutError if its `main` does not return in
        time, EngineRefusedError if it refuses otherwise.
        """
        body: dict[str, Any] = {"allowNonRestoredState": False}
        if submission.state is not None:
            # NO_CLAIM: speck keeps the state, and may restore it again
            body |= {"savepointPath": submission.state, "claimMode": "NO_CLAIM"}
        try:
            with self._translate_errors(f"start {submission.job_name}"):
                self._mains.run(submission, "run", body)
                return None
        except DuplicateJobError:
            raise
        except EngineRefusedError as refused:
            # main can fail after it has submitted the job: then the job runs in spite of the error
            job = self.jobs().get(submission.engine_job_id)
            if job is None or job.state.terminal:
                raise
            cause = refused.__cause__
            return cause.refusal.reason if isinstance(cause, RefusedAnswer) else str(refused)

    def resend(self, submission: Submission) -> None:
        """Run the connector's own program, which is in the jar of every job that uses it."""
        self.submit(replace(submission, entry=RESEND_CLASS))

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        """Use the id up with a job of our own: Flink lists a job whose savepoint cannot be read as
        failed, and refuses further jobs of that id. Raises DuplicateJobError if Flink knows the id
        already, UnreachableError if it takes no jar.

        It does not ask for the job itself: such requests wait for a thread, all of which may be
        held by trials that hang."""
        with TemporaryDirectory(prefix="speck-") as folder:
            try:
                self.submit(make_fence(engine_job_id, Path(folder)))
            except DuplicateJobError:
                raise
            except (MainTimeoutError, NoAnswerInTimeError) as error:
                self._rest.get("/overview")
                raise UnreachableError(
                    f"cannot fence {engine_job_id}: the engine at {self._rest.address} takes no"
                    " jar: trials of a main that never return hold its threads"
                    " (rest.server.numThreads); restart the engine"
                ) from error
            except EngineRefusedError:
                if engine_job_id not in self.jobs():
                    raise
                return
        raise DuplicateJobError(f"cannot fence {engine_job_id}: the job runs")

    def status(self, engine_job_id: str) -> RunState | None:
        """Return the incarnation's state; None only if Flink reports that it knows no such job."""
        with self._translate_errors(f"read the state of job {engine_job_id}"):
            job = self._rest.find(f"/jobs/{engine_job_id}")
            return answers.job_state(job) if job is not None else None

    def has_finished(self, engine_job_id: str) -> bool:
        """Whether its sources have ended: a job that was stopped with a savepoint is FINISHED, too,
        but lists that savepoint. Waits like `newest_state` for the cache."""
        with self._translate_errors(f"read how job {engine_job_id} has ended"):
            job = self._known_job(engine_job_id, "read the end of")
            if answers.job_state(job) is not RunState.FINISHED:
                return False
            self._outwait_cache(engine_job_id, job)
            try:
                checkpoints = self._rest.get(f"/jobs/{engine_job_id}/checkpoints")
            except RefusedAnswer as refused:
                if refused.refusal.status != 404 or refused.refusal.job_unknown:
                    raise
                return True  # it takes no checkpoints, and so no savepoints either
            return not answers.was_stopped(checkpoints)

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Begin a stop with savepoint. Never drains: that would end windows early."""
        with self._translate_errors(f"stop job {engine_job_id}"):
            body = _savepoint_body(folder, trigger_id) | {"drain": False}
            self._rest.post(f"/jobs/{engine_job_id}/stop", body)

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        """Begin a savepoint of a job that keeps running."""
        with self._translate_errors(f"take a savepoint of job {engine_job_id}"):
            body = _savepoint_body(folder, trigger_id, "target-directory")
            body |= {"cancel-job": False}
            self._rest.post(f"/jobs/{engine_job_id}/savepoints", body)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        """Trigger a checkpoint now, in addition to the periodic ones."""
        with self._translate_errors(f"take a checkpoint of job {engine_job_id}"):
            body = {"checkpointType": "CONFIGURED", "triggerId": trigger_id}
            self._rest.post(f"/jobs/{engine_job_id}/checkpoints", body)

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Return its progress, in contrast to `checkpointing` from no cache."""
        with self._translate_errors(f"read progress of a checkpoint of job {engine_job_id}"):
            path = f"/jobs/{engine_job_id}/checkpoints/{trigger_id}"
            return answers.checkpoint_progress(self._rest.get(path))

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        """Return its progress. Raises EngineRefusedError if the engine does not know the trigger
        (any more): it keeps results for `rest.async.store-duration`, and loses them when the
        JobManager restarts."""
        with self._translate_errors(
            f"read progress of savepoint {trigger_id} of job {engine_job_id}"
        ):
            path = f"/jobs/{engine_job_id}/savepoints/{trigger_id}"
            progress = answers.savepoint_progress(self._rest.get(path))
            if progress.done:
                return progress
            checkpoints = self._rest.find(f"/jobs/{engine_job_id}/checkpoints")
            return answers.with_subtasks(progress, checkpoints) if checkpoints else progress

    def cancel(self, engine_job_id: str) -> None:
        """Cancel at once; does nothing if the job has ended or is not known."""
        with self._translate_errors(f"cancel job {engine_job_id}"):
            try:
                self._rest.patch(f"/jobs/{engine_job_id}", {"mode": "cancel"})
            except RefusedAnswer as answer:
                ended_already = answer.refusal.status == 409
                if not ended_already and not answer.refusal.job_unknown:
                    raise

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        """Return the newest complete checkpoint or savepoint of this incarnation that still exists.

        For an ended job the answer is exact: Flink answers from a cache, so just after the end
        this waits until the cached answer has expired (3 s at most, unless configured higher).
        Raises TransientError if that wait would exceed the time limit, and for a running job if
        the cache lists only checkpoints that have been discarded.
        """
        with self._translate_errors(f"read the checkpoints of job {engine_job_id}"):
            job = self._known_job(engine_job_id, "read the checkpoints of")
            has_ended = self._outwait_cache(engine_job_id, job)
            checkpoints = self._rest.get(f"/jobs/{engine_job_id}/checkpoints")
            try:
                return answers.newest_state(checkpoints)
            except EngineRefusedError as error:
                if has_ended or not answers.any_discarded(checkpoints):
                    raise
                # it runs: newer checkpoints have replaced all those in the engine's cache
                raise TransientError(
                    f"cannot determine the newest checkpoint of job {engine_job_id} now: {error}"
                ) from error

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """Sends one request, and one more for the first call of a job, since the interval does not
        change while the job runs. None: Flink does not know the job."""
        with self._translate_errors(f"read the checkpoints of job {engine_job_id}"):
            try:
                interval_s = self._configuration.interval_s(engine_job_id)
                if interval_s is None:
                    return Checkpointing(None)
                answer = self._rest.get(f"/jobs/{engine_job_id}/checkpoints")
            except RefusedAnswer as refused:
                if refused.refusal.status != 404 or not refused.refusal.job_unknown:
                    raise
                return None
            return answers.checkpointing(interval_s, answer)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Return the failures of the incarnation, newest first; empty if the job is not known."""
        with self._translate_errors(f"read exceptions of job {engine_job_id}"):
            answer = self._rest.find(f"/jobs/{engine_job_id}/exceptions")
            return answers.job_exceptions(answer) if answer is not None else []

    def last_end(self) -> EngineEnd | None:
        """Return what stands in `<role>.out` among the engine's logs, see `binders.flink.ends`."""
        within = self._rest.within(self._timeout_s)
        with within, self._translate_errors("read how the engine ended"):
            return read_last_end(self._rest)

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        """Return the vertices of Flink's plan."""
        with self._translate_errors(f"read the plan of job {engine_job_id}"):
            return answers.plan_nodes(self._rest.get(f"/jobs/{engine_job_id}/plan"))

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Return counters summed over subtasks: those of operators, e.g.
        `Source__mqtt.numRecordsOut`, and `<vertex id>.accumulateBusyTimeMs` (Idle, BackPressured).
        Values are as old as the engine's `metrics.fetcher.update-interval`, and older in the first
        answer after a pause."""
        with self._translate_errors(f"read metrics of job {engine_job_id}"):
            return read_counters(self._rest, engine_job_id)

    def is_connected(self, engine_job_id: str) -> bool | None:
        """Return what the connector of its source reports; its requests are those of `metrics`."""
        return answers.source_connected(self.metrics(engine_job_id))

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Return the counters of every subtask of the running jobs and the resources used by the
        workers; sends two requests for a job with one vertex, one more for each other vertex."""
        with self._translate_errors("measure the engine's jobs"):
            return self._measuring.measure(engine_job_ids)

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs, each with its line of config.yaml."""
        with self._rest.within(CHECK_S), self._translate_errors("read the engine's settings"):
            return self._configuration.check(self.view(), self._measuring.metaspace)

    def state_folder(self) -> str | None:
        """Return `execution.checkpointing.dir`; None if it is not set."""
        with self._translate_errors("read the engine's settings"):
            return self._configuration.settings().get(*checks.CHECKPOINT_DIR)

    def close(self) -> None:
        """Close all connections."""
        self._rest.close()

    def _known_job(self, engine_job_id: str, what: str) -> Mapping[str, Any]:
        job = self._rest.find(f"/jobs/{engine_job_id}")
        if job is None:
            raise EngineRefusedError(f"cannot {what} job {engine_job_id}: it is not known")
        return job

    def _outwait_cache(self, engine_job_id: str, job: Mapping[str, Any]) -> bool:
        """Whether the job has ended. If so, what the engine says of its checkpoints is exact."""
        # the job, too, may come from a cache and still be RUNNING there; this list does not
        end_ms = answers.end_ms(self._rest.get("/jobs/overview"), engine_job_id)
        if end_ms is not None:
            since_end_ms = answers.engine_clock_ms(job) - end_ms
            self._configuration.outwait_checkpoint_cache(since_end_ms, self._timeout_s)
        return end_ms is not None

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        """Turn Flink's error answers into SpeckErrors with the message "cannot `what`: ..."."""
        try:
            yield
        except RefusedAnswer as answer:
            raise answer.refusal.error(what) from answer
        except _NOT_FLINK as error:
            raise UnreachableError(
                f"cannot {what}: {self._rest.address} does not answer as Flink does"
                f" ({type(error).__name__}: {error}); check the site's address"
            ) from error


RESEND_CLASS = "io.speck.mqtt.ResendJob"

_NOT_FLINK = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading an answer raises that did not come from Flink."""


def _savepoint_body(
    directory: str | None, trigger_id: str, directory_key: str = "targetDirectory"
) -> dict[str, Any]:
    body = {"triggerId": trigger_id, "formatType": "CANONICAL"}
    return body if directory is None else body | {directory_key: directory}
