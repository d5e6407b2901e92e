"""Stores which jobs have finished: engines forget jobs that have ended, and what is forgotten would
count as lost."""

from __future__ import annotations

from collections.abc import Mapping

from speck.deploy.changes import Changes
from speck.deploy.finished_jobs import find_finished, finish
from speck.errors import TransientError
from speck.model.composition import visible_name
from speck.model.observation import EngineView, RunState
from speck.monitor.health import Watched
from speck.sites.connections import Connections
from speck.store.records import Records


class FinishedJobs:
    """Takes the jobs whose sources have ended out of those that should run."""

    def __init__(self, records: Records, connections: Connections, changes: Changes):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._others: set[str] = set()
        """Engine job ids of those that were stopped at their engine: they are asked about once."""

    def take_out(
        self, jobs: list[Watched], views: Mapping[str, EngineView | None]
    ) -> list[Watched]:
        """The jobs that have not finished, of which those that may have are left out as well while
        their engine does not say."""
        ended = {job.engine_job_id: job for job in jobs if _is_over(job, views.get(job.site))}
        self._others &= ended.keys()
        asked = [job for engine_job_id, job in ended.items() if engine_job_id not in self._others]
        kept = {job.engine_job_id for job in asked if self._still_counts(job, views[job.site])}
        self._others |= kept
        left_out = {job.engine_job_id for job in asked} - kept
        return [job for job in jobs if job.engine_job_id not in left_out] if left_out else jobs

    def _still_counts(self, job: Watched, view: EngineView | None) -> bool:
        """Whether a job that is over at its engine should run; stores it if it has finished."""
        incarnation = self._records.incarnation(*job.key)
        if incarnation is None or incarnation.engine_job_id != job.engine_job_id or view is None:
            return False
        try:
            if not find_finished(self._connections, view, [incarnation]):
                return True
        except TransientError:
            return False
        if self._records.restored is not None:  # then nothing is stored
            return False
        with self._changes.resting(job.scope) as resting:
            if resting and self._records.incarnation(*job.key) == incarnation:
                message = f"{job.job_name} has finished at {job.site}: its sources have ended"
                composition = visible_name(job.scope)
                self._records.write(
                    self._records.put_incarnation(job.scope, finish(incarnation)),
                    self._records.event(
                        "job",
                        message,
                        site=job.site,
                        job_name=job.job_name,
                        composition=composition,
                    ),
                )
        return False


def _is_over(job: Watched, view: EngineView | None) -> bool:
    engine_job = view.jobs.get(job.engine_job_id) if view is not None and not job.busy else None
    return engine_job is not None and engine_job.state is RunState.FINISHED
