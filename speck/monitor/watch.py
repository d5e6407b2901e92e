"""The loop that looks at all sites, says what changed there, and has mended what broke.

Decisions are those of `speck.monitor.health`; this is where they meet the sites. Looks run in
threads of their own (`speck.sites.poll_cache`): a site that is slow or silent holds up no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from speck.binding import Checkpointing
from speck.clock import Clock
from speck.deploy.changes import Changes, Running
from speck.errors import SpeckError
from speck.model.change import ChangeState
from speck.model.composition import visible_name
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation
from speck.model.job import Job
from speck.model.observation import BrokerView, EngineView
from speck.monitor.health import (
    Decision,
    Health,
    JobMemory,
    Key,
    Memory,
    Progress,
    Watched,
    decide,
    wants_progress,
)
from speck.monitor.health_board import HealthBoard, JobHealth
from speck.monitor.sessions import Sessions, sinks_of
from speck.sites.concurrency import AdaptiveConcurrency
from speck.sites.connections import Connections
from speck.sites.poll_cache import PATIENCE_S, Poll, PollCache
from speck.sites.site_polls import SitePolls
from speck.store.desired_state import DesiredJobs
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

CALM_S = 60.0
"""A job that has run for so long since its last failure is not said to be failing any more."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """How often the engine lists an incarnation as failed (it keeps so many only), and the newest
    reason."""

    failures: int
    reason: str

    def __str__(self) -> str:
        if not self.loops:
            return self.reason
        return f"it fails again and again ({self.failures} failures are listed): {self.reason}"

    @property
    def loops(self) -> bool:
        return self.failures > 1


Mend = Callable[[str, frozenset[str]], Running | None]
"""(scope, jobs to leave alone) -> the change that mends it; None: nothing to do, or busy."""


T = TypeVar("T")


class Watch:
    """Looks every `every_s` seconds, and sooner when something is due. 0: never by itself."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        changes: Changes,
        polls: SitePolls,
        board: HealthBoard,
        clock: Clock,
        mend: Mend,
        every_s: float,
    ):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._polls = polls
        self._board = board
        self._clock = clock
        self._mend = mend
        self._every_s = every_s
        self._patience_s = max(PATIENCE_S, every_s)
        """For all sites together; those that it did not come to are the first in the next round."""
        self._wanted = DesiredJobs(records)
        self._memory = Memory()
        self._causes: dict[Key, _Cause] = {}
        self._amiss: dict[Key, float] = {}
        self._asked: dict[str, set[str]] = {}
        self._checkpoints: PollCache[Mapping[str, Checkpointing]] = PollCache(
            self._poll_checkpoints, clock, lambda: float("-inf"), "checkpoints"
        )
        caches = (polls.engines, polls.broker_numbers, self._checkpoints)
        self._at_once = AdaptiveConcurrency(lambda: sum(each.cpu_s for each in caches)).at_once
        self._used: dict[tuple[str, str], float] = {}
        self._settled: dict[Key, tuple[str, float]] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="mend")
        self._mending: dict[str, Future[None]] = {}
        self.sessions = Sessions(records, connections, changes)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.mended = 0
        """How many jobs it has had mended."""

    def start(self) -> None:
        """Begin to look, unless that is switched off."""
        if self._every_s > 0:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more, and begin to mend nothing more."""
        self._over.set()
        self._checkpoints.close()
        self._polls.broker_numbers.close()
        if self._thread is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)
        self.sessions.close()

    def _publish(self) -> None:
        jobs = {key: self._health_of(key, memory) for key, memory in self._memory.jobs.items()}
        lost = {site: self.sessions.lost_at(site) for site in self._records.sites()}
        self._board.publish(jobs, lost)

    def _health_of(self, key: Key, memory: JobMemory) -> JobHealth:
        cause = self._causes.get(key)
        reason = memory.reason or (str(cause) if cause else None) or memory.waits
        loops = cause is not None and cause.loops and memory.health is Health.RUNNING
        health = Health.RESTARTING if loops else memory.health
        return JobHealth(memory.engine_job_id, health, reason)

    @property
    def polls(self) -> dict[str, int]:
        """How many looks at single sites have ended since the start, by what was looked at."""
        return {
            "engine": self._polls.engines.ended,
            "checkpoints": self._checkpoints.ended,
            "numbers": self._polls.broker_numbers.ended,
        }

    # -- one look -------------------------------------------------------------------------

    def poll(self) -> float | None:
        """Look once at everything, act on it, and say when (monotonic) to look again at the
        latest; None: whenever."""
        begun = self._clock.monotonic()
        self._settle(begun)
        engines = self._polls.engines.at(
            self._records.sites(), within_s=self._patience_s, at_once=self._at_once
        )
        now = self._clock.monotonic()
        jobs = self._jobs(engines)
        sites = {site: poll.found for site, poll in engines.items()}
        numbers = self._numbers()
        progress = self._progress(jobs, sites, numbers, now)
        before = self._memory
        made = decide(now, sites, jobs, progress, before)
        self._memory = made.memory
        self._tell_sites(before, made.memory, engines, now)
        self._tell_jobs(jobs, before, made)
        self.sessions.poll(now, numbers)
        self._publish()
        for scope, names in made.mend.items():
            self._have_mended(scope, names)
        return made.due

    def _settle(self, now: float) -> None:
        """Since when each job's newest incarnation is known, with no change at work on it: what
        an engine was asked for before that says nothing of it."""
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

    def _jobs(self, engines: Mapping[str, Poll[EngineView]]) -> list[Watched]:
        """All jobs that ought to run, as they are now."""
        found = []
        deployed_jobs = sorted(self._records.all_incarnations().items())
        at_work = self._at_work()  # after them, see `_settle`
        scopes = {scope for (scope, _), _ in deployed_jobs}
        policies = {scope: self._wanted.jobs(scope) for scope in scopes}
        left = {scope: self._left_alone(scope) for scope in scopes}
        for (scope, name), deployed in deployed_jobs:
            policy = policies[scope].get(name)
            if policy is None or not self._ought_to_run(scope, deployed):
                continue
            settled = self._settled.get((scope, name))
            poll = engines.get(deployed.job.site)
            current = (
                settled is not None
                and settled[0] == deployed.engine_job_id
                and (poll is None or poll.found is None or poll.begun >= settled[1])
            )
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

    def _left_alone(self, scope: str) -> str | None:
        """Why nothing is mended in a scope, whatever its description says."""
        if self._wanted.removing(scope):
            return "it was to be removed"
        if self._changes.was_cancelled(self._wanted.last_change(scope)):
            return "the last change was cancelled: apply again"
        return None

    def _ought_to_run(self, scope: str, deployed: Incarnation) -> bool:
        """Whether it ran, and speck itself did not end it; or a repair meant it to run again.

        An incarnation that a person's change could not bring up is theirs to apply again.
        """
        if deployed.ended or deployed.confirmed:
            return not deployed.ended
        return deployed.base is not None and self._wanted.repaired(scope)

    def _at_work(self) -> Callable[[str, str], bool]:
        """Whether something is at work now on a job of a scope. A change that is blocked may be
        so for days: it is at work on those jobs only for which it has something left to do."""
        mending = {scope for scope, future in self._mending.items() if not future.done()}
        under_way = {running.scope: running for running in self._changes.all_under_way()}
        concerned = {
            scope: {o.step.operation.job_name for o in r.change.operations if not o.state.over}
            for scope, r in under_way.items()
            if r.execution is not None and r.change.state is ChangeState.BLOCKED
        }

        def at_work(scope: str, name: str) -> bool:
            if scope in mending or scope not in under_way:
                return scope in mending
            return scope not in concerned or name in concerned[scope]

        return at_work

    # -- progress -------------------------------------------------------------------------

    def _progress(
        self,
        jobs: list[Watched],
        sites: Mapping[str, EngineView | None],
        numbers: Mapping[str, Poll[BrokerView]],
        now: float,
    ) -> dict[Key, Progress]:
        """How far those running jobs are of which that is worth asking."""
        asked: dict[str, list[Watched]] = {}
        for job in jobs:
            view = sites.get(job.site)
            running = view is not None and not job.busy and job.engine_job_id in view.jobs
            if running and wants_progress(self._memory, job.key, now):
                asked.setdefault(job.site, []).append(job)
        self._asked = {site: {j.engine_job_id for j in some} for site, some in asked.items()}
        checkpoints = self._new(
            "checkpoints",
            self._checkpoints.at(asked, within_s=self._patience_s, at_once=self._at_once),
        )
        deployed = self._records.all_incarnations()
        sinks = sinks_of(deployed.values(), self._records.installation)
        views = {site: poll.found for site, poll in numbers.items() if poll.found is not None}
        found = {}
        for site, some in asked.items():
            poll = checkpoints.get(site)
            for job in some:
                told = (poll.found or {}).get(job.engine_job_id) if poll else None
                if told is not None and job.key in deployed:
                    known = deployed[job.key].job
                    feeding = sinks.get(known.source, [])
                    found[job.key] = self._progress_of(known, told, feeding, views)
        return found

    def _numbers(self) -> dict[str, Poll[BrokerView]]:
        """What the brokers said since the last time."""
        return self._new(
            "numbers",
            self._polls.broker_numbers.at(
                self._records.sites(), within_s=self._patience_s, at_once=self._at_once
            ),
        )

    def _progress_of(
        self, job: Job, told: Checkpointing, sinks: list[str], views: Mapping[str, BrokerView]
    ) -> Progress:
        view = views.get(job.source_site)
        if view is None:
            return Progress(told.interval_s, told.completed_id)
        reader = source_client_id(self._records.installation, job.job_name, job.source)
        sinks = view.sinks_of(job.source.topic, sinks)
        taken = view.taken.get(reader)
        return Progress(
            told.interval_s,
            told.completed_id,
            taken.messages if taken else None,
            sum(view.sent[sink].number for sink in sinks) if sinks else None,
            view.lag(reader, sinks),
        )

    def _new(self, kind: str, polls: Mapping[str, Poll[T]]) -> dict[str, Poll[T]]:
        """The looks made since the last time: the same one twice would count as two."""
        found = {}
        for site, poll in polls.items():
            if poll.begun > self._used.get((kind, site), float("-inf")):
                self._used[kind, site] = poll.begun
                found[site] = poll
        return found

    def _poll_checkpoints(self, site: str) -> dict[str, Checkpointing]:
        engine, found = self._connections.engine(site), {}
        for engine_job_id in sorted(self._asked.get(site, ())):
            told = engine.checkpointing(engine_job_id)
            if told is not None:
                found[engine_job_id] = told
        return found

    # -- telling --------------------------------------------------------------------------

    def _tell_sites(
        self, before: Memory, after: Memory, engines: Mapping[str, Poll[EngineView]], now: float
    ) -> None:
        batches: list[Batch] = []
        for site in sorted(after.silent.keys() - before.silent.keys()):
            why = engines[site].error
            message = f"site {site} is unreachable: {why}; what runs there is left alone"
            batches.append(self._records.event("site", message, site=site))
        for site in sorted(before.silent.keys() & engines.keys() - after.silent.keys()):
            away = now - before.silent[site]
            message = f"site {site} answers again after {away:.0f} s"
            batches.append(self._records.event("site", message, site=site))
        if after.held and not before.held:
            silent = ", ".join(sorted(after.silent))
            message = f"{len(after.silent)} of {len(engines)} sites vanished at once ({silent})"
            message += ": nothing is moved or mended until they are back"
            batches.append(self._records.event("site", message))
        if before.held and not after.held:
            batches.append(self._records.event("site", "enough sites are back: mending goes on"))
        if batches:
            self._records.write(*batches)

    def _tell_jobs(self, jobs: list[Watched], before: Memory, made: Decision) -> None:
        """An event for each job whose health became another."""
        batches: list[Batch] = []
        for job in jobs:
            new, old = made.memory.jobs.get(job.key), before.jobs.get(job.key)
            if new is None or job.busy:
                continue
            if self._is_calm(job, new):
                self._causes.pop(job.key, None)
            same = old is not None and old.engine_job_id == new.engine_job_id
            begins = new.waits is not None and (old is None or old.waits is None)
            waits = [self._event("job", f"{job.job_name}: {new.waits}", job)] if begins else []
            if same and old is not None and old.health is new.health:
                batches += waits
                continue
            if new.health in (Health.FAILED, Health.RESTARTING, Health.STOPPING):
                self._note_cause(job)
            now_mended = job.job_name in made.mend.get(job.scope, ())
            left = None if now_mended else new.not_before - self._clock.monotonic()
            message = self._news(job, new, left)
            if message is not None:
                kind = "drift" if new.health is Health.ENDED else "job"
                batches.append(self._event(kind, message, job))
            batches += waits
        known = made.memory.jobs
        self._causes = {key: cause for key, cause in self._causes.items() if key in known}
        self._amiss = {key: since for key, since in self._amiss.items() if key in known}
        if batches:
            self._records.write(*batches)

    def _is_calm(self, job: Watched, new: JobMemory) -> bool:
        """Whether nothing is to be said any more of why it failed."""
        cause = self._causes.get(job.key)
        if new.health is not Health.RUNNING or cause is None or not cause.loops:
            return new.health in (Health.RUNNING, Health.UNREACHABLE)
        return self._clock.monotonic() - new.since >= CALM_S

    def _news(self, job: Watched, new: JobMemory, left_s: float | None) -> str | None:
        """What to tell of a job's health that is another than before; it is left alone for
        `left_s`, None: it is being mended."""
        name, cause = job.job_name, self._causes.get(job.key)
        because = f": {cause}" if cause else ""
        if new.health is Health.RUNNING:
            amiss = self._amiss.pop(job.key, None)
            if amiss is None:
                return None
            return f"{name} runs again at {job.site} after {new.since - amiss:.0f} s"
        if new.health in _AMISS:
            self._amiss.setdefault(job.key, new.since)
        match new.health:
            case Health.LOST:
                message = f"{name} is lost: the engine of {job.site} answers and does not know it"
            case Health.FAILED:
                message = f"{name} has failed at {job.site}{because}"
            case Health.ENDED:
                message = f"{name} was ended at {job.site} though nobody asked"
            case Health.RESTARTING:
                return f"{name} is being restarted by the engine of {job.site}{because}"
            case Health.STALLED:
                return f"{name} is stalled at {job.site}: {new.reason}"
            case _:
                return None
        if not job.mend:
            return f"{message}; it is left so, since {job.since}"
        if left_s is None:
            return f"{message}; it is started again"
        if left_s > 0:
            return (
                f"{message}; mended {new.mends} times by now, it is left alone for {left_s:.0f} s"
            )
        return message

    def _note_cause(self, job: Watched) -> None:
        try:
            failures = self._connections.engine(job.site).exceptions(job.engine_job_id)
        except SpeckError as error:
            LOG.info("no exceptions of %s: %s", job.job_name, error)
            return
        if failures:
            reason = failures[0].reason or failures[0].name
            self._causes[job.key] = _Cause(len(failures), reason)

    def _event(self, kind: str, message: str, job: Watched) -> Batch:
        composition = visible_name(job.scope)
        return self._records.event(
            kind, message, site=job.site, job_name=job.job_name, composition=composition
        )

    # -- mending --------------------------------------------------------------------------

    def _have_mended(self, scope: str, names: frozenset[str]) -> None:
        """In a thread of its own: to plan is to look at every site of the scope."""
        known = self._wanted.jobs(scope).keys() | self._records.inventory(scope).jobs.keys()
        leave = frozenset(known) - names
        self._mending[scope] = self._pool.submit(self._mend_now, scope, names, leave)

    def _mend_now(self, scope: str, names: frozenset[str], leave: frozenset[str]) -> None:
        try:
            running = self._mend(scope, leave)
        except SpeckError as error:
            self._tell_unmended(scope, names, str(error))
        except Exception as error:
            LOG.exception("cannot mend %s", scope)
            self._tell_unmended(scope, names, repr(error))
        else:
            if running is not None:
                self.mended += len(names)

    def _tell_unmended(self, scope: str, names: frozenset[str], why: str) -> None:
        composition = visible_name(scope)
        for name in sorted(names):
            message = f"cannot mend {name} now: {why}"
            event = self._records.event("job", message, job_name=name, composition=composition)
            self._records.write(event)

    # -- the loop -------------------------------------------------------------------------

    def _run(self) -> None:
        due: float | None = None
        gives_way = False  # at the start there is nothing known
        while not self._over.is_set() and not self._changes.closing:
            gives_way = gives_way and due is None and self._changes.await_calm(self._over)
            if self._over.is_set() or self._changes.closing:
                break
            due, begun = None, self._clock.monotonic()
            try:
                due = self.poll()
            except Exception:
                if not self._over.is_set():
                    LOG.exception("a look at the sites failed")
            gives_way = not gives_way  # not twice running, when changes follow each other
            now = self._clock.monotonic()
            self._over.wait(pause_s(self._every_s, now - begun, None if due is None else due - now))


def pause_s(every_s: float, took_s: float, due_s: float | None) -> float:
    """Seconds from one look at all sites, which `took_s`, to the next: `every_s`, or sooner when
    something is due in `due_s`. Of many sites about as long as the look took, so that looks leave
    half of the service's time to others; what a few silent ones take is only waiting."""
    left = every_s if due_s is None else min(every_s, max(0.1, due_s))
    return max(left, took_s - 3 * PATIENCE_S)


_AMISS = (
    Health.STALLED,
    Health.RESTARTING,
    Health.STOPPING,
    Health.ENDED,
    Health.FAILED,
    Health.LOST,
)
