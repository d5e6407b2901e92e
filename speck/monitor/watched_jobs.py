"""Which jobs ought to run now, and which of them something is at work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speck.deploy.changes import Changes
from speck.model.change import ChangeState
from speck.model.incarnation import Incarnation
from speck.model.observation import EngineView
from speck.monitor.health import Key, Watched
from speck.monitor.repairs import Repairs
from speck.sites.poll_cache import Poll
from speck.store.desired_state import DesiredJobs
from speck.store.records import Records


class WatchedJobs:
    """The jobs to judge at a look. What an engine was asked for before a job's newest incarnation
    was known says nothing of it: such a job counts as busy."""

    def __init__(self, records: Records, desired: DesiredJobs, changes: Changes, repairs: Repairs):
        self._records = records
        self._desired = desired
        self._changes = changes
        self._repairs = repairs
        self._settled: dict[Key, tuple[str, float]] = {}

    def settle(self, now: float) -> None:
        """Note, before engines are looked at, since when (monotonic) each job's newest incarnation
        is known with no change at work on it."""
        settled = {}
        deployed_jobs = self._records.all_incarnations()
        at_work = self._at_work()  # after them: who stored a newer one is seen at work
        for (scope, name), deployed in deployed_jobs.items():
            if at_work(scope, name):
                continue
            since = self._settled.get((scope, name))
            same = since is not None and since[0] == deployed.engine_job_id
            settled[scope, name] = since if since and same else (deployed.engine_job_id, now)
        self._settled = settled

    def at(self, engines: Mapping[str, Poll[EngineView]]) -> list[Watched]:
        """All jobs that ought to run, as they are at this look at the engines."""
        found = []
        deployed_jobs = sorted(self._records.all_incarnations().items())
        at_work = self._at_work()  # after them, see `settle`
        scopes = {scope for (scope, _), _ in deployed_jobs}
        policies = {scope: self._desired.jobs(scope) for scope in scopes}
        left = {scope: self._left_alone(scope) for scope in scopes}
        for (scope, name), deployed in deployed_jobs:
            policy = policies[scope].get(name)
            if policy is None or not self._ought_to_run(scope, deployed):
                continue
            current = self._is_current((scope, name), deployed, engines.get(deployed.job.site))
            found.append(
                Watched(
                    scope,
                    name,
                    deployed.job.site,
                    deployed.engine_job_id,
                    deployed.job.parallelism,
                    mend=policy.mend and left[scope] is None,
                    busy=not current or at_work(scope, name),
                    since=left[scope] or "its composition says drift: report",
                )
            )
        return found

    def _is_current(self, key: Key, deployed: Incarnation, poll: Poll[EngineView] | None) -> bool:
        """Whether the look at an engine can know a job's newest incarnation."""
        settled = self._settled.get(key)
        if settled is None or settled[0] != deployed.engine_job_id:
            return False
        return poll is None or poll.answer is None or poll.begun >= settled[1]

    def _left_alone(self, scope: str) -> str | None:
        """Why nothing is mended in a scope, whatever its description says."""
        if self._desired.is_removing(scope):
            return "it was to be removed"
        if self._changes.was_cancelled(self._desired.last_change(scope)):
            return "the last change was cancelled: apply again"
        return None

    def _ought_to_run(self, scope: str, deployed: Incarnation) -> bool:
        """Whether it ran, and speck itself did not end it; or a repair meant it to run again.

        An incarnation that a person's change could not bring up is theirs to apply again.
        """
        if deployed.ended or deployed.confirmed:
            return not deployed.ended
        return deployed.base is not None and self._desired.is_last_change_repair(scope)

    def _at_work(self) -> Callable[[str, str], bool]:
        """Whether something is at work now on a job of a scope. A change that is blocked may be
        so for days: it is at work on those jobs only for which it has something left to do."""
        repaired = self._repairs.scopes
        under_way = {running.scope: running for running in self._changes.all_under_way()}
        concerned = {
            scope: {o.step.operation.job_name for o in r.change.operations if not o.state.over}
            for scope, r in under_way.items()
            if r.execution is not None and r.change.state is ChangeState.BLOCKED
        }

        def at_work(scope: str, name: str) -> bool:
            if scope in repaired or scope not in under_way:
                return scope in repaired
            return scope not in concerned or name in concerned[scope]

        return at_work
