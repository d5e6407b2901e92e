"""Stores which jobs have finished: engines forget jobs that have ended, and what is forgotten would
count as lost."""

from __future__ import annotations

from collections.abc import Mapping

from speck.deploy.begun_jobs import put_noticed
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
        self._ends: dict[str, bool] = {}
        """Whether those that are over have finished, by engine job id; the others were stopped at
        their engine. It is asked once, though a result may not be stored at once, or never."""

    def take_out(
        self, jobs: list[Watched], views: Mapping[str, EngineView | None]
    ) -> list[Watched]:
        """The jobs that have not finished, of which those that may have are left out as well while
        their engine does not say."""
        ended = {job.engine_job_id: job for job in jobs if _is_over(job, views.get(job.site))}
        self._ends = {each: self._ends[each] for each in ended.keys() & self._ends.keys()}
        left_out = {
            job.engine_job_id for job in ended.values() if not self._still_counts(job, views)
        }
        return [job for job in jobs if job.engine_job_id not in left_out] if left_out else jobs

    def _still_counts(self, job: Watched, views: Mapping[str, EngineView | None]) -> bool:
        """Whether a job that is over at its engine should run; stores it if it has finished."""
        if self._ends.get(job.engine_job_id) is False:
            return True
        incarnation, view = self._records.incarnations.get(*job.key), views[job.site]
        if incarnation is None or incarnation.engine_job_id != job.engine_job_id or view is None:
            return False
        if job.engine_job_id not in self._ends:
            try:
                has_finished = bool(find_finished(self._connections, view, [incarnation]))
            except TransientError:
                return False
            self._ends[job.engine_job_id] = has_finished
            if not has_finished:
                return True
        if self._records.restored is not None:  # then nothing is stored
            return False
        with self._changes.resting(job.scope) as resting:
            if resting and self._records.incarnations.get(*job.key) == incarnation:
                message = f"{job.job_name} has finished at {job.site}: its sources have ended"
                composition = visible_name(job.scope)
                event = self._records.events.make(
                    "job",
                    message,
                    site=job.site,
                    job_name=job.job_name,
                    composition=composition,
                )
                sessions = self._records.sessions.of_scope(job.scope)
                writing = self._changes.session_locks.writing
                with writing.all_of(each.client_id for each in sessions):
                    noticed = [(incarnation, finish(incarnation))]
                    self._records.write(put_noticed(self._records, job.scope, noticed), event)
        return False


def _is_over(job: Watched, view: EngineView | None) -> bool:
    engine_job = view.jobs.get(job.engine_job_id) if view is not None and not job.busy else None
    return engine_job is not None and engine_job.state is RunState.FINISHED
