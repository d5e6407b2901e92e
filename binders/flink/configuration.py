"""How a Flink cluster and its jobs are configured; what cannot change while they run is kept.

Raises RefusedAnswer, and what reading an answer raises that did not come from Flink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from binders.flink import check as checks
from binders.flink.jvm import Jvm, metaspace_finding
from binders.flink.rest import FlinkRest, RefusedAnswer
from binders.flink.settings import Settings
from speck.errors import TransientError
from speck.model.finding import Finding
from speck.model.observation import EngineJob, EngineView, RunState

JOBS_CHECKED = 20
"""The most running jobs whose checkpoint configuration `check` reads."""

INTERVALS_KEPT = 10_000
"""The most jobs whose checkpoint interval is cached."""


class Configuration:
    """That of one cluster. Thread-safe."""

    def __init__(self, rest: FlinkRest):
        self._rest = rest
        self._settings: Settings | None = None
        self._intervals: dict[str, float | None] = {}
        self._lock = threading.Lock()

    def settings(self, *, refresh: bool = False) -> Settings:
        """The cluster's settings, read once unless `refresh`."""
        with self._lock:
            settings = self._settings
        if settings is None or refresh:
            settings = Settings.of(self._rest.get("/jobmanager/config"))
            with self._lock:
                self._settings = settings
        return settings

    def outwait_checkpoint_cache(self, since_end_ms: float, most_s: float) -> None:
        """Wait until what the engine says of the checkpoints of a job that ended so long ago is no
        older than its end. Raises TransientError if that takes more than `most_s`."""
        remaining_s = (self.settings().checkpoint_cache_ms - since_end_ms) / 1000
        if remaining_s > most_s:
            raise TransientError(
                f"cannot determine the newest checkpoint: the engine at {self._rest.address} may"
                f" answer from its cache for {remaining_s:.0f} s more; set"
                " rest.cache.checkpoint-statistics.timeout: 500"
            )
        time.sleep(max(0.0, remaining_s))

    def jvm(self) -> Jvm:
        """The JobManager's JVM; empty for one that does not describe it (Flink before 1.15)."""
        try:
            return Jvm.of(self._rest.get("/jobmanager/environment"))
        except RefusedAnswer as refused:
            if refused.refusal.status != 404:
                raise
            return Jvm()

    def check(
        self, view: EngineView, read_metaspace: Callable[[], tuple[int | None, int | None]]
    ) -> list[Finding]:
        """Find settings that would lose data or starve jobs, of the cluster and of the first
        `JOBS_CHECKED` jobs that run."""
        version = checks.version_finding(view.version)
        if version is not None and version.severity == "error":
            return [version]  # it may not even report its settings
        findings = checks.findings(self.settings(refresh=True), view, self.jvm())
        running = [job for job in view.jobs.values() if job.state is RunState.RUNNING]
        of_jobs = [self._check_job(job) for job in running[:JOBS_CHECKED]]
        of_jobs += [version, metaspace_finding(*read_metaspace())]
        return findings + [finding for finding in of_jobs if finding is not None]

    def _check_job(self, job: EngineJob) -> Finding | None:
        """Check how a running job takes checkpoints."""
        try:
            config = self._rest.get(f"/jobs/{job.engine_job_id}/checkpoints/config")
        except RefusedAnswer as refused:
            if refused.refusal.status != 404:
                raise
            ended_meanwhile = refused.refusal.job_unknown
            return None if ended_meanwhile else checks.job_finding(job.name, None)
        return checks.job_finding(job.name, config)

    def interval_s(self, engine_job_id: str) -> float | None:
        """A job's checkpoint interval, cached; None: it takes no checkpoints."""
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
