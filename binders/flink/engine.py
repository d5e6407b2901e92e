"""The Flink binder: speck's engine contract in terms of Flink's REST API."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from binders.flink import answers
from binders.flink import check as checks
from binders.flink.jars import JarStore
from binders.flink.measuring import Measuring, batches
from binders.flink.rest import FlinkRest, RefusedAnswer
from binders.flink.settings import Settings
from speck.binding import (
    CheckpointInfo,
    Checkpointing,
    EngineCapability,
    Finding,
    JobException,
    SavepointProgress,
    Submission,
    Target,
)
from speck.errors import DuplicateJobError, EngineRefusedError, TransientError, UnreachableError
from speck.model.measurement import EngineMeasures
from speck.model.observation import EngineJob, EngineView, RunState

LOG = logging.getLogger(__name__)

MAIN_TIME_FACTOR = 6
"""A job's `main` runs inside plan and run calls: they may take this many ordinary time limits."""

JOBS_CHECKED = 20
"""Running jobs of which `check` reads the checkpoint configuration."""

INTERVALS_KEPT = 10_000
"""Jobs of which it is remembered how often they take checkpoints."""


class FlinkEngine:
    """One Flink cluster at `target.address` (http://host:port of its REST API)."""

    capabilities = frozenset(EngineCapability)

    def __init__(self, target: Target):
        self._rest = FlinkRest(target.address, target.timeout_s)
        self._timeout_s = target.timeout_s
        self._main_s = target.timeout_s * MAIN_TIME_FACTOR
        self._jars = JarStore(self._rest, self._main_s)
        self._measuring = Measuring(self._rest)
        self._settings: Settings | None = None
        self._intervals: dict[str, float | None] = {}
        self._lock = threading.Lock()

    def view(self) -> EngineView:
        """Version, slots and every job in two requests. Raises Unreachable-, TransientError."""
        with self._translated("look at the engine"):
            return answers.engine_view(
                self._rest.get("/overview"), self._rest.get("/jobs/overview")
            )

    def jobs(self) -> Mapping[str, EngineJob]:
        """Every job in one request. Raises Unreachable-, TransientError."""
        with self._translated("look at the engine's jobs"):
            return answers.engine_jobs(self._rest.get("/jobs/overview"))

    def upload(self, jar_file: Path, sha256: str) -> None:
        """Upload once for each content, however many threads ask. Raises SpeckErrors."""
        with self._translated(f"upload {jar_file.name}"):
            self._jars.put(jar_file, sha256)

    def try_main(self, submission: Submission) -> None:
        """Run `main` without starting anything. Raises EngineRefusedError with its failure."""
        with self._translated(f"try main of {submission.job_name}"):
            self._with_jar(submission, "plan", _plan_body(submission))

    def submit(self, submission: Submission) -> None:
        """Start the incarnation.

        Raises DuplicateJobError when the engine knows the id, running or ended (also after a
        refused savepoint, which burns the id), EngineRefusedError when it says no otherwise.
        """
        body = _plan_body(submission) | {"allowNonRestoredState": False}
        if submission.savepoint is not None:
            # NO_CLAIM: the state stays ours, and may be restored again
            body |= {"savepointPath": submission.savepoint, "claimMode": "NO_CLAIM"}
        try:
            with self._translated(f"start {submission.job_name}"):
                self._with_jar(submission, "run", body)
        except DuplicateJobError:
            raise
        except EngineRefusedError as refused:
            # main can fail after it has submitted: the job then runs though the call failed
            state = self.status(submission.engine_job_id)
            if state is None or state.terminal:
                raise
            name = submission.job_name
            LOG.warning("%s runs though its main failed after starting it: %s", name, refused)

    def fence(self, submission: Submission) -> None:
        """Use the id up: Flink lists a job whose savepoint cannot be read as failed, and takes
        no other of that id. Raises DuplicateJobError when it knows the id already."""
        job_id = submission.engine_job_id
        try:
            self.submit(replace(submission, savepoint=f"file:///speck/fenced/{job_id}"))
        except DuplicateJobError:
            raise
        except EngineRefusedError:
            if self.status(job_id) is None:
                raise
            return
        raise DuplicateJobError(f"cannot fence {job_id}: the job runs")

    def status(self, engine_job_id: str) -> RunState | None:
        """The incarnation's state; None only on Flink's own word that it knows no such job."""
        with self._translated(f"look at job {engine_job_id}"):
            job = self._job(engine_job_id)
            return answers.job_state(job) if job is not None else None

    def stop(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin stop-with-savepoint. Never drains: that would end windows early."""
        with self._translated(f"stop job {engine_job_id}"):
            body = _savepoint_body(target_directory, trigger_id) | {"drain": False}
            self._rest.post(f"/jobs/{engine_job_id}/stop", body)

    def savepoint(self, engine_job_id: str, target_directory: str | None, trigger_id: str) -> None:
        """Begin a savepoint of a job that goes on."""
        with self._translated(f"take a savepoint of job {engine_job_id}"):
            body = _savepoint_body(target_directory, trigger_id, "target-directory")
            body |= {"cancel-job": False}
            self._rest.post(f"/jobs/{engine_job_id}/savepoints", body)

    def checkpoint(self, engine_job_id: str) -> None:
        """Trigger a checkpoint now, beside those that come by themselves."""
        with self._translated(f"take a checkpoint of job {engine_job_id}"):
            body = {"checkpointType": "CONFIGURED"}
            self._rest.post(f"/jobs/{engine_job_id}/checkpoints", body)

    def savepoint_progress(self, engine_job_id: str, trigger_id: str) -> SavepointProgress:
        """How far it is. EngineRefusedError when the engine has no such trigger (any more):
        results live `rest.async.store-duration` long, and not past the JobManager."""
        with self._translated(f"look at savepoint {trigger_id} of job {engine_job_id}"):
            path = f"/jobs/{engine_job_id}/savepoints/{trigger_id}"
            progress = answers.savepoint_progress(self._rest.get(path))
            if progress.done:
                return progress
            checkpoints = self._unless_unknown(f"/jobs/{engine_job_id}/checkpoints")
            return answers.with_subtasks(progress, checkpoints) if checkpoints else progress

    def cancel(self, engine_job_id: str) -> None:
        """Cancel at once; harmless when the job has ended or is not known."""
        with self._translated(f"cancel job {engine_job_id}"):
            try:
                self._rest.patch(f"/jobs/{engine_job_id}", {"mode": "cancel"})
            except RefusedAnswer as answer:
                ended_already = answer.refusal.status == 409
                if not ended_already and not answer.refusal.job_unknown:
                    raise

    def newest_state(self, engine_job_id: str) -> CheckpointInfo | None:
        """The newest complete checkpoint or savepoint of this incarnation that still exists.

        Of an ended job it is exact: Flink answers from a cache, so just after the end this
        waits until the cache must have forgotten the job as it was before (3 s at most, unless
        configured higher). Raises TransientError when that wait would exceed the time limit, and
        of a running job when the cache lists only checkpoints that are gone by now.
        """
        with self._translated(f"look at checkpoints of job {engine_job_id}"):
            job = self._job(engine_job_id)
            if job is None:
                raise EngineRefusedError(
                    f"cannot look at checkpoints of job {engine_job_id}: it is not known"
                )
            # the job itself may come from a cache too, and say RUNNING still; this list does not
            ended_ms = answers.ended_ms(self._rest.get("/jobs/overview"), engine_job_id)
            if ended_ms is not None:
                self._outwait_cache(answers.engine_clock_ms(job) - ended_ms)
            checkpoints = self._rest.get(f"/jobs/{engine_job_id}/checkpoints")
            try:
                return answers.newest_state(checkpoints)
            except EngineRefusedError as gone:
                if ended_ms is not None or not answers.any_discarded(checkpoints):
                    raise
                # it runs: newer ones have taken the place of all that the engine's cache lists
                raise TransientError(
                    f"cannot tell the newest checkpoint of job {engine_job_id} now: {gone}"
                ) from gone

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """One request; one more when the job is asked about for the first time, since how often
        a job takes checkpoints does not change while it runs. None: Flink does not know it."""
        with self._translated(f"look at checkpoints of job {engine_job_id}"):
            try:
                interval_s = self._interval_s(engine_job_id)
                if interval_s is None:
                    return Checkpointing(None)
                answer = self._rest.get(f"/jobs/{engine_job_id}/checkpoints")
            except RefusedAnswer as refused:
                if refused.refusal.status != 404 or not refused.refusal.job_unknown:
                    raise
                return None
            return answers.checkpointing(interval_s, answer)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        """Failures of the incarnation, newest first; none when the job is not known."""
        with self._translated(f"read exceptions of job {engine_job_id}"):
            answer = self._unless_unknown(f"/jobs/{engine_job_id}/exceptions")
            return answers.job_exceptions(answer) if answer is not None else []

    def job_plan(self, engine_job_id: str) -> Mapping[str, Any]:
        """Flink's plan: `{"nodes": [{"id", "parallelism", "description", "inputs"}]}`."""
        with self._translated(f"read the plan of job {engine_job_id}"):
            plan: Mapping[str, Any] = self._rest.get(f"/jobs/{engine_job_id}/plan")["plan"]
            return plan

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        """Operators' counters summed over subtasks, e.g. `Source__mqtt.numRecordsOut`, and
        `<vertex id>.accumulateBusyTimeMs` (Idle, BackPressured) summed over subtasks.

        Two requests for each vertex and one. Values are as old as the engine's
        `metrics.fetcher.update-interval`, older at the first look after a pause.
        """
        with self._translated(f"read metrics of job {engine_job_id}"):
            found: dict[str, float] = {}
            for vertex in self._rest.get(f"/jobs/{engine_job_id}")["vertices"]:
                for name, value in self._vertex_metrics(engine_job_id, str(vertex["id"])).items():
                    found[name] = found.get(name, 0.0) + value
            return found

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """Counters of every subtask of the jobs that run, and what the workers use; two requests
        for a job with one vertex, one more for each other vertex."""
        with self._translated("measure the engine's jobs"):
            return self._measuring.measure(engine_job_ids)

    def check(self) -> list[Finding]:
        """Settings that would lose data or starve jobs, each with its line of config.yaml."""
        with self._translated("read the engine's settings"):
            settings = self._read_settings(again=True)
            view = self.view()
            found = checks.findings(settings, view)
            running = [job for job in view.jobs.values() if job.state is RunState.RUNNING]
            polls = [self._checkpointing(job) for job in running[:JOBS_CHECKED]]
            return found + [finding for finding in polls if finding is not None]

    def checkpoint_folder(self) -> str | None:
        """`execution.checkpointing.dir`, None when it is not set."""
        with self._translated("read the engine's settings"):
            return self._read_settings().get(*checks.CHECKPOINT_DIR)

    def close(self) -> None:
        """Give back connections."""
        self._rest.close()

    def _with_jar(self, submission: Submission, verb: str, body: Mapping[str, Any]) -> None:
        """Call a jar's `verb`; upload again, once, when the engine has lost the jar."""
        jar = self._jars.put(submission.jar_file, submission.jar)
        try:
            self._rest.post(f"/jars/{jar}/{verb}", body, timeout_s=self._main_s)
        except RefusedAnswer as answer:
            if not answer.refusal.jar_gone:
                raise
            jar = self._jars.put(submission.jar_file, submission.jar, gone=jar)
            self._rest.post(f"/jars/{jar}/{verb}", body, timeout_s=self._main_s)

    def _job(self, engine_job_id: str) -> Mapping[str, Any] | None:
        return self._unless_unknown(f"/jobs/{engine_job_id}")

    def _unless_unknown(self, path: str) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = self._rest.get(path)
            return answer
        except RefusedAnswer as refused:
            if refused.refusal.status == 404 and refused.refusal.job_unknown:
                return None
            raise

    def _outwait_cache(self, ended_ms_ago: float) -> None:
        left_s = (self._read_settings().checkpoint_cache_ms - ended_ms_ago) / 1000
        if left_s > self._timeout_s:
            raise TransientError(
                f"cannot tell the newest checkpoint: the engine at {self._rest.address} may answer"
                f" from its cache for {left_s:.0f} s more; set"
                " rest.cache.checkpoint-statistics.timeout: 500"
            )
        time.sleep(max(0.0, left_s))

    def _checkpointing(self, job: EngineJob) -> Finding | None:
        """What is wrong with how a running job takes checkpoints."""
        try:
            config = self._rest.get(f"/jobs/{job.engine_job_id}/checkpoints/config")
        except RefusedAnswer as refused:
            if refused.refusal.status != 404:
                raise
            ended_meanwhile = refused.refusal.job_unknown
            return None if ended_meanwhile else checks.job_finding(job.name, None)
        return checks.job_finding(job.name, config)

    def _interval_s(self, engine_job_id: str) -> float | None:
        """How often a job takes checkpoints; None: it takes none. Remembered."""
        with self._lock:
            if engine_job_id in self._intervals:
                return self._intervals[engine_job_id]
        try:
            config = self._rest.get(f"/jobs/{engine_job_id}/checkpoints/config")
        except RefusedAnswer as refused:
            if refused.refusal.status != 404 or refused.refusal.job_unknown:
                raise
            config = None
        interval_s = checks.interval_s(config)
        with self._lock:
            if len(self._intervals) >= INTERVALS_KEPT:
                self._intervals.clear()
            self._intervals[engine_job_id] = interval_s
        return interval_s

    def _vertex_metrics(self, engine_job_id: str, vertex: str) -> dict[str, float]:
        path = f"/jobs/{engine_job_id}/vertices/{vertex}/metrics"
        names = answers.counter_names(self._rest.get(path))
        values: list[Mapping[str, Any]] = []
        for batch in batches(names):
            values += self._rest.get(path, {"get": ",".join(batch)})
        return answers.summed(vertex, values)

    def _read_settings(self, *, again: bool = False) -> Settings:
        with self._lock:
            settings = self._settings
        if settings is None or again:
            settings = Settings.of(self._rest.get("/jobmanager/config"))
            with self._lock:
                self._settings = settings
        return settings

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn Flink's refusals into SpeckErrors that say what could not be done."""
        try:
            yield
        except RefusedAnswer as answer:
            raise answer.refusal.error(what) from answer
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreachableError(
                f"cannot {what}: {self._rest.address} does not answer as Flink does"
                f" ({type(error).__name__}: {error}); check the site's address"
            ) from error


def _plan_body(submission: Submission) -> dict[str, Any]:
    return {
        "entryClass": submission.entry_class,
        "programArgsList": list(submission.args),
        "parallelism": submission.parallelism,
        "jobId": submission.engine_job_id,
    }


def _savepoint_body(
    directory: str | None, trigger_id: str, directory_key: str = "targetDirectory"
) -> dict[str, Any]:
    body = {"triggerId": trigger_id, "formatType": "CANONICAL"}
    return body if directory is None else body | {directory_key: directory}
