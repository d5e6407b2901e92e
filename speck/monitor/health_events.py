"""Reports changes of sites' and jobs' health as events, with the causes of failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speck.clock import Clock
from speck.model.composition import visible_name
from speck.model.job_state import JobState
from speck.model.observation import EngineView
from speck.monitor.failure_causes import Cause, FailureCauses
from speck.monitor.health import JobMemory, Key, Memory, RepairDecision, Watched
from speck.monitor.judge import JobFinding
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll
from speck.store.records import Records
from speck.store.tables import Batch

CALM_S = 60.0
"""A job that has run for this long since its last failure is not reported as failing any more."""

_UNHEALTHY = (
    JobState.STALLED,
    JobState.RESTARTING,
    JobState.STOPPING,
    JobState.STOPPED,
    JobState.FAILED,
    JobState.LOST,
)

ASKED_AGAIN_S = 10.0
"""How often an engine is asked for the failures of a job that it keeps restarting, and of one that
has failed until it tells them."""


class HealthEvents:
    """Writes the events, and remembers why jobs failed and since when they are unhealthy."""

    def __init__(self, records: Records, connections: Connections, clock: Clock):
        self._records = records
        self._clock = clock
        self._finding = FailureCauses(connections)
        self._causes: dict[Key, Cause] = {}
        self._asked_at: dict[Key, float] = {}
        """When an engine was asked last for the failures of a job, with an answer or without."""
        self._unhealthy_since: dict[Key, float] = {}
        self._shown: dict[Key, tuple[JobMemory, Cause | None, JobFinding]] = {}

    def find(self, key: Key, memory: JobMemory) -> JobFinding:
        """What is known of a job beside its engine's last report."""
        cause = self._causes.get(key)
        shown = self._shown.get(key)
        if shown is not None and shown[0] is memory and shown[1] is cause:
            return shown[2]
        loops = cause is not None and _is_loop(memory, cause)
        finding = JobFinding(
            memory.engine_job_id,
            stall=memory.stall,
            failure=str(cause) if cause is not None else None,
            failures=max(cause.failures, memory.repairs) if cause is not None and loops else 0,
            is_restarted=cause is not None
            and cause.loops
            and cause.engine_job_id == memory.engine_job_id,
            waits=memory.waits,
            was_stopped=True,
        )
        self._shown[key] = memory, cause, finding
        return finding

    def report_sites(
        self, before: Memory, after: Memory, engines: Mapping[str, Poll[EngineView]], now: float
    ) -> None:
        """Write an event for each site that became unreachable or answers again."""
        batches: list[Batch] = []
        for site in sorted(after.silent.keys() - before.silent.keys()):
            why = engines[site].error
            message = f"site {site} is unreachable: {why}; its jobs are left unchanged"
            batches.append(self._records.events.make("site", message, site=site))
        for site in sorted(before.silent.keys() & engines.keys() - after.silent.keys()):
            away = now - before.silent[site]
            message = f"site {site} answers again after {away:.0f} s"
            batches.append(self._records.events.make("site", message, site=site))
        batches += self._report_partial(before, after, engines)
        if after.on_hold and not before.on_hold:
            silent = ", ".join(sorted(after.silent))
            message = (
                f"{len(after.silent)} of {len(engines)} sites became unreachable at the same time"
            )
            message += f" ({silent}): no job is moved or repaired until they are back"
            batches.append(self._records.events.make("site", message))
        if before.on_hold and not after.on_hold:
            batches.append(
                self._records.events.make("site", "enough sites are back: repairs continue")
            )
        if batches:
            self._records.write(*batches)

    def _report_partial(
        self, before: Memory, after: Memory, engines: Mapping[str, Poll[EngineView]]
    ) -> Iterator[Batch]:
        """An event for each site of whose two engines one does not answer any more, or again."""
        for site in sorted(after.partial - before.partial):
            view = engines[site].answer
            why = view.silence if view is not None else None
            message = f"one of the two engines of {site} does not answer: {why}; its jobs are left"
            message += " unchanged"
            yield self._records.events.make("site", message, site=site)
        for site in sorted((before.partial & engines.keys()) - after.partial - after.silent.keys()):
            message = f"both engines of {site} answer again"
            yield self._records.events.make("site", message, site=site)

    def close(self) -> None:
        """Ask engines for nothing more."""
        self._finding.close()

    def report_jobs(self, jobs: list[Watched], before: Memory, decision: RepairDecision) -> None:
        """Write an event for each job whose state has changed."""
        memories = decision.memory.jobs
        watched = []
        for job in jobs:
            new, old = memories.get(job.key), before.jobs.get(job.key)
            if new is None or job.busy or (new is old and job.key not in self._causes):
                continue
            if self._is_calm(job, new) or self._is_of_former(job, new):
                self._causes.pop(job.key, None)
            watched.append((job, new, old if old and _are_of_one(old, new) else None, old))
        late = self._find_causes(watched)
        batches = self._explain_late(jobs, late, memories)
        for job, new, same, old in watched:
            begins = new.waits is not None and (old is None or old.waits is None)
            if same is None or same.state is not new.state:
                is_repaired_now = job.job_name in decision.repair.get(job.scope, ())
                left_s = None if is_repaired_now else new.not_before - self._clock.monotonic()
                message = self._describe_state(job, new, left_s)
                if message is not None:
                    kind = "drift" if new.state is JobState.STOPPED else "job"
                    batches.append(self._event(kind, message, job))
            if begins:
                batches.append(self._event("job", f"{job.job_name}: {new.waits}", job))
        self._forget_others(memories)
        if batches:
            self._records.write(*batches)

    def _find_causes(
        self, watched: list[tuple[Watched, JobMemory, JobMemory | None, JobMemory | None]]
    ) -> dict[Key, Cause]:
        """Ask for the causes of what has changed; returns those of what had changed before."""
        lost, failed, now = [], [], self._clock.monotonic()
        changed: set[Key] = set()
        for job, new, same, _ in watched:
            if same is not None and same.state is new.state:
                if self._is_cause_due(job, new):
                    failed.append(job)
                continue
            changed.add(job.key)
            went_back = (
                same is not None and new.state is JobState.DEPLOYING
            )  # its engine restarts it
            if new.state is JobState.LOST:
                lost.append(job)
            elif went_back or new.state in (
                JobState.FAILED,
                JobState.RESTARTING,
                JobState.STOPPING,
            ):
                failed.append(job)
        self._asked_at |= {job.key: now for job in failed}
        begun = self._finding.ask(lost, failed)
        causes = self._finding.take()
        explained = changed & begun  # by the event of the change itself
        late = {
            key: cause
            for key, cause in causes.items()
            if key not in explained and self._is_news(key, cause)
        }
        self._causes |= causes
        return late

    def _is_news(self, key: Key, cause: Cause) -> bool:
        """Whether it is another reason than the one that was found last, of the same attempt."""
        last = self._causes.get(key)
        return last is None or (last.engine_job_id, last.reason) != (
            cause.engine_job_id,
            cause.reason,
        )

    def _explain_late(
        self, jobs: list[Watched], late: Mapping[Key, Cause], memories: Mapping[Key, JobMemory]
    ) -> list[Batch]:
        """Events about causes that were found after the change of health had been reported."""
        return [
            self._event("job", f"{job.job_name} had failed or was lost: {late[job.key]}", job)
            for job in jobs
            if job.key in late and job.key in memories
        ]

    def _forget_others(self, memories: Mapping[Key, JobMemory]) -> None:
        """Forget what is known of jobs that are not watched any more."""
        self._causes = {key: cause for key, cause in self._causes.items() if key in memories}
        self._asked_at = {key: at for key, at in self._asked_at.items() if key in memories}
        self._unhealthy_since = {
            key: since for key, since in self._unhealthy_since.items() if key in memories
        }
        for key in self._shown.keys() - memories.keys():
            del self._shown[key]

    def _is_calm(self, job: Watched, new: JobMemory) -> bool:
        """Whether the causes of its failures need not be shown any more."""
        cause = self._causes.get(job.key)
        if new.state is not JobState.RUNNING or cause is None or not _is_loop(new, cause):
            return new.state in (JobState.RUNNING, JobState.UNREACHABLE)
        return self._clock.monotonic() - new.since >= CALM_S

    def _is_of_former(self, job: Watched, new: JobMemory) -> bool:
        """Whether the cause is that of a former incarnation, which this one does not repair."""
        cause = self._causes.get(job.key)
        return cause is not None and cause.engine_job_id != new.engine_job_id and not new.repairs

    def _describe_state(self, job: Watched, new: JobMemory, left_s: float | None) -> str | None:
        """Describe a job's changed state. The next repair is due in `left_s` seconds; None: it is
        being repaired."""
        name, cause = job.job_name, self._causes.get(job.key)
        because = f": {cause}" if cause else ""
        if new.state is JobState.RUNNING:
            since = self._unhealthy_since.pop(job.key, None)
            if since is None:
                return None
            return f"{name} runs again at {job.site} after {new.since - since:.0f} s"
        if new.state in _UNHEALTHY:
            self._unhealthy_since.setdefault(job.key, new.since)
        match new.state:
            case JobState.LOST:
                message = f"{name} is lost: the engine of {job.site} answers and does not know it"
                message += because
            case JobState.FAILED:
                message = f"{name} has failed at {job.site}{because}"
            case JobState.STOPPED:
                message = f"{name} has ended at {job.site} though speck did not stop it"
            case JobState.RESTARTING:
                return f"{name} is being restarted by the engine of {job.site}{because}"
            case JobState.STALLED:
                return f"{name} is stalled at {job.site}: {new.stall}"
            case _:
                return None
        if not job.repair:
            return f"{message}; it is not repaired, since {job.since}"
        if left_s is None:
            return f"{message}; it is started again"
        if left_s > 0:
            return f"{message}; repaired {new.repairs} times so far, next repair in {left_s:.0f} s"
        return message

    def _is_cause_due(self, job: Watched, new: JobMemory) -> bool:
        """Whether to read the failures of a job once more: a job that is still being restarted
        has further ones, and those of a failed one may not have been readable."""
        is_unknown = new.state is JobState.FAILED and job.key not in self._causes
        if new.state is not JobState.RESTARTING and not is_unknown:
            return False
        asked_at = self._asked_at.get(job.key, float("-inf"))
        return self._clock.monotonic() - asked_at >= ASKED_AGAIN_S

    def _event(self, kind: str, message: str, job: Watched) -> Batch:
        composition = visible_name(job.scope)
        return self._records.events.make(
            kind, message, site=job.site, job_name=job.job_name, composition=composition
        )


def _are_of_one(old: JobMemory, new: JobMemory) -> bool:
    """Whether both are of one incarnation."""
    return old.engine_job_id == new.engine_job_id


def _is_loop(memory: JobMemory, cause: Cause) -> bool:
    """Whether a job fails again and again, be it restarted by its engine or repaired by speck."""
    return cause.loops or memory.repairs > 1
