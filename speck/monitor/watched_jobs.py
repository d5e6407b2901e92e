"""Lists the jobs that should run now, and which of them are being changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speck.deploy.changes import Changes
from speck.model.change import ChangeState
from speck.model.incarnation import Incarnation
from speck.model.observation import EngineView
from speck.monitor.change_errors import ChangeErrors
from speck.monitor.health import Key, Watched
from speck.monitor.repairs import Repairs
from speck.sites.poll_cache import Poll
from speck.store.desired_state import DesiredJobs
from speck.store.records import Records

DRIFT = "its composition says drift: report"
REWIRED = "its newest revision gives it other links, which only a whole change does: apply again"


class WatchedJobs:
    """The jobs to judge at a poll. An engine's answer from before a job's newest incarnation was
    stored says nothing about that incarnation: such a job counts as busy."""

    def __init__(
        self,
        records: Records,
        desired: DesiredJobs,
        changes: Changes,
        repairs: Repairs,
        errors: ChangeErrors,
    ):
        self._records = records
        self._errors = errors
        self._desired_jobs = desired
        self._changes = changes
        self._repairs = repairs
        self._watched: dict[Key, tuple[Incarnation, Watched]] = {}
        self._settled_since: dict[Key, tuple[str, float]] = {}

    def settle(self, now: float) -> None:
        """Record, before engines are polled, since when (monotonic) each job's newest incarnation
        is stored with no change at work on it."""
        settled_since = {}
        incarnations = self._records.incarnations.all()
        at_work = (
            self._find_at_work()
        )  # read second: a change that stored a newer one is seen at work
        for (scope, name), incarnation in incarnations.items():
            if at_work(scope, name):
                continue
            since = self._settled_since.get((scope, name))
            same = since is not None and since[0] == incarnation.engine_job_id
            settled_since[scope, name] = (
                since if since and same else (incarnation.engine_job_id, now)
            )
        self._settled_since = settled_since

    def list_at(self, engines: Mapping[str, Poll[EngineView]]) -> list[Watched]:
        """All jobs that should run, at this poll of the engines."""
        watched_jobs = []
        incarnations_by_key = self._records.incarnations.all()
        incarnations = incarnations_by_key.items()
        at_work = self._find_at_work()  # read second, see `settle`
        scopes = {scope for (scope, _), _ in incarnations}
        desired = {scope: self._desired_jobs.jobs(scope) for scope in scopes}
        reasons = {scope: self._explain_no_repair(scope) for scope in scopes}
        repaired = {scope: self._desired_jobs.is_last_change_repair(scope) for scope in scopes}
        for (scope, name), incarnation in incarnations:
            is_repaired = desired[scope].get(name)
            if is_repaired is None or not self._ought_to_run(scope, incarnation):
                continue
            current = self._is_current(
                (scope, name), incarnation, engines.get(incarnation.job.site)
            )
            is_rewired = self._desired_jobs.is_rewired(scope, incarnation.job)
            reason = reasons[scope] or (REWIRED if is_rewired else DRIFT)
            repair = is_repaired and reasons[scope] is None and not is_rewired
            busy = not current or at_work(scope, name)
            error = None if incarnation.confirmed else self._find_error(scope, name)
            known = self._watched.get((scope, name))
            if known is not None and known[0] is incarnation:
                job = known[1]
                if (job.repair, job.busy, job.since, job.error) == (repair, busy, reason, error):
                    watched_jobs.append(job)
                    continue
            job = Watched(
                scope,
                name,
                incarnation.job.engine,
                incarnation.engine_job_id,
                incarnation.job.parallelism,
                repair=repair,
                busy=busy,
                since=reason,
                repaired=repaired[scope],
                start=incarnation.start,
                has_base=incarnation.base is not None,
                error=error,
                may_restart=reasons[scope] is None,
            )
            self._watched[scope, name] = incarnation, job
            watched_jobs.append(job)
        for key in self._watched.keys() - incarnations_by_key.keys():
            del self._watched[key]
        return watched_jobs

    def _find_error(self, scope: str, name: str) -> str | None:
        running, last = self._changes.under_way(scope), self._desired_jobs.last_change(scope)
        return self._errors.of(running, last).get(name)

    def _is_current(
        self, key: Key, incarnation: Incarnation, poll: Poll[EngineView] | None
    ) -> bool:
        """Whether a poll of an engine can know a job's newest incarnation."""
        settled_at = self._settled_since.get(key)
        if settled_at is None or settled_at[0] != incarnation.engine_job_id:
            return False
        return poll is None or poll.answer is None or poll.begun >= settled_at[1]

    def _explain_no_repair(self, scope: str) -> str | None:
        """Explain why nothing is repaired in a scope, whatever its description says; None if it may
        be."""
        if self._desired_jobs.is_removing(scope):
            return "it is being removed"
        if self._changes.was_cancelled(self._desired_jobs.last_change(scope)):
            return "the last change was cancelled: apply again"
        return None

    def _ought_to_run(self, scope: str, incarnation: Incarnation) -> bool:
        """Whether it ran and speck did not end it, or a repair was to start it again.

        An incarnation that a user's change could not start is left for the user to apply again.
        """
        if incarnation.ended or incarnation.confirmed:
            return not incarnation.ended
        return incarnation.base is not None and self._desired_jobs.is_last_change_repair(scope)

    def _find_at_work(self) -> Callable[[str, str], bool]:
        """A function that tells whether a repair or a change is at work on a job of a scope. A
        change may be blocked for days: it is at work only on the jobs for which it has operations
        left."""
        scopes_in_repair = self._repairs.scopes
        under_way = {running.scope: running for running in self._changes.all_under_way()}
        jobs_by_scope = {
            scope: {o.step.operation.job_name for o in r.change.operations if not o.state.over}
            for scope, r in under_way.items()
            if r.execution is not None and r.change.state is ChangeState.BLOCKED
        }

        def at_work(scope: str, name: str) -> bool:
            if scope in scopes_in_repair or scope not in under_way:
                return scope in scopes_in_repair
            return scope not in jobs_by_scope or name in jobs_by_scope[scope]

        return at_work
