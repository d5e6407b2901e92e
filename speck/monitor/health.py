"""Remembers what polls showed of jobs, and decides when to repair them. Pure: no I/O, the time is
passed in.

The state of each job comes from `speck.monitor.judge`. An unreachable site is never a fault of its
jobs: only an engine that answers can report a job as failed or unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from speck.model.engines import EngineAt
from speck.model.incarnation import StartState
from speck.model.job_state import JobState
from speck.model.observation import EngineView, RunState
from speck.monitor.judge import Facts, JobFinding, Observed, Sight, judge, observe
from speck.monitor.stalls import STALL_LIMITS, Course, Progress, StallLimits, follow

Key = tuple[str, str]
"""(scope, job name)"""


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds, except counts.

    A job that breaks again is repaired after `wait_first`, then twice that, and so on up to
    `wait_most`; once it has run for `steady` the waits begin anew. A job must be unknown to its
    engine for `lost_for` before it is lost: a restarted master may recover its jobs. Its workers
    may still run old tasks; their end is awaited for at most `zombies_for`. Sites that become
    unreachable within `at_once` of each other count as one failure, and suspend repairs for at most
    `hold_for`.
    """

    wait_first: float = 1.0
    wait_most: float = 300.0
    steady: float = 300.0
    lost_for: float = 1.0
    zombies_for: float = 120.0
    at_once: float = 60.0
    hold_for: float = 600.0
    least_silent: int = 2
    stall: StallLimits = STALL_LIMITS

    def wait(self, repairs: int) -> float:
        """Seconds to wait after a job's n-th repair."""
        return float(min(self.wait_first * 2.0 ** min(repairs - 1, 60), self.wait_most))


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Watched:
    """A job that should run: its newest incarnation. With `repair` false its state is only
    reported, for the reason given by `since`. A `busy` job is being changed, and is not judged.
    `repaired`: the incarnation was started by a repair. `start`, `has_base` and `error`: see
    `Facts`. `may_restart`: it is restarted when its brokers' addresses have changed, whatever its
    composition says of drift."""

    scope: str
    job_name: str
    engine: EngineAt
    engine_job_id: str
    slots: int = 1
    repair: bool = True
    busy: bool = False
    since: str = ""
    repaired: bool = True
    start: StartState = StartState.CONFIRMED
    has_base: bool = False
    error: str | None = None
    may_restart: bool = True
    key: Key = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.scope, self.job_name))

    @property
    def site(self) -> str:
        return self.engine.site

    def facts(self, observed: Observed, stall: str | None) -> Facts:
        """What its state follows from. One that has finished is not among those that should run."""
        return Facts(
            start=self.start,
            has_base=self.has_base,
            error=self.error,
            observed=observed,
            finding=JobFinding(self.engine_job_id, stall=stall, was_stopped=True),
        )


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What earlier polls showed of a job: its momentary state (see `JobStatus`) `since` when, by
    what was `observed` last. `stall` says why it makes no progress. `repairs` and `not_before`
    outlive an incarnation that is repaired, but no other: what a user starts begins with a clean
    slate. `waits` says what a repair waits for at the job's site."""

    job: Watched
    state: JobState
    since: float
    observed: Observed = Sight.UNSEEN
    stall: str | None = None
    repairs: int = 0
    not_before: float = float("-inf")
    course: Course | None = None
    waits: str | None = None

    @property
    def engine_job_id(self) -> str:
        return self.job.engine_job_id


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier polls showed: of jobs; since when sites are unreachable; whether repairs are
    `on_hold` since sites became unreachable at the same time; and the `partial` sites, of whose two
    engines one does not answer."""

    jobs: Mapping[Key, JobMemory] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    on_hold: bool = False
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RepairDecision:
    """The new memory, the jobs to repair now by scope, and when (monotonic) the next poll is due if
    that is before the regular one."""

    memory: Memory
    repair: Mapping[str, frozenset[str]]
    due: float | None = None


def wants_progress(memory: Memory, key: Key, now: float, intervals: float = 1.0) -> bool:
    """Whether to ask the engine for a running job's progress: about once in so many checkpoint
    intervals, and at each poll once it has made none for so long."""
    memory_of_job = memory.jobs.get(key)
    course = memory_of_job.course if memory_of_job is not None else None
    return course is None or course.is_due(now, intervals)


def decide(
    now: float,
    sites: Mapping[str, EngineView | None],
    jobs: Iterable[Watched],
    progress: Mapping[Key, Progress],
    before: Memory,
    limits: Limits = LIMITS,
) -> RepairDecision:
    """Judge one poll, made at `now` (monotonic seconds).

    `sites` holds every site that was polled, with None for one that did not answer. A job that is
    busy, or whose site was not polled, keeps its memory; one that is not in `jobs` any more is
    forgotten.
    """
    jobs_to_judge = list(jobs)
    silent = {site: before.silent.get(site, now) for site, view in sites.items() if view is None}
    partial = frozenset(site for site, view in sites.items() if view is not None and view.silent)
    is_on_hold = _is_on_hold(now, silent, len(sites), before.on_hold, limits)
    memories: dict[Key, JobMemory] = {}
    for job in jobs_to_judge:
        old = before.jobs.get(job.key)
        if job.busy:
            if old is not None:
                memories[job.key] = replace(old, course=None)
        elif job.site in sites:
            memories[job.key] = _update(
                now, job, sites[job.site], progress.get(job.key), old, limits
            )
        elif old is not None:
            memories[job.key] = old
    due: list[float] = []
    repair: dict[str, set[str]] = {}
    if not is_on_hold:
        for job in _find_due_repairs(now, jobs_to_judge, sites, memories, due, limits):
            memory = memories[job.key]
            repairs = memory.repairs + 1
            memories[job.key] = replace(
                memory, repairs=repairs, not_before=now + limits.wait(repairs)
            )
            repair.setdefault(job.scope, set()).add(job.job_name)
    return RepairDecision(
        Memory(memories, silent, is_on_hold, partial),
        {scope: frozenset(names) for scope, names in repair.items()},
        min(due, default=None),
    )


def _is_on_hold(
    now: float, silent: Mapping[str, float], sites: int, before: bool, limits: Limits
) -> bool:
    """Whether half of the sites, and at least two, became unreachable at the same time.

    Then the fault is probably in the network near the control plane. Repairs are suspended until
    fewer sites are unreachable, or for `hold_for`: the sites that do answer must not wait longer.
    """
    enough = max(limits.least_silent, (sites + 1) // 2)
    if len(silent) < enough:
        return False
    times = sorted(silent.values())
    if now - times[enough - 1] > limits.hold_for:
        return False
    together = any(
        times[first + enough - 1] - times[first] <= limits.at_once
        for first in range(len(times) - enough + 1)
    )
    return before or together


def _find_due_repairs(
    now: float,
    jobs: list[Watched],
    sites: Mapping[str, EngineView | None],
    memories: dict[Key, JobMemory],
    due: list[float],
    limits: Limits,
) -> Iterable[Watched]:
    """The broken jobs to repair now: their wait is over and there are slots for them. In order of
    names."""
    slots_given: Counter[EngineAt] = Counter()
    broken = [
        job
        for job in jobs
        if job.repair
        and not job.busy
        and (memory := memories.get(job.key)) is not None
        and memory.state.broken
    ]
    watched = {job.engine_job_id: job for job in jobs} if broken else {}
    for job in sorted(broken, key=lambda job: job.key):
        memory, view = memories[job.key], sites.get(job.site)
        if view is None or job.engine.artifact in view.silent:
            continue
        ready = memory.not_before
        if memory.observed is Sight.ABSENT:
            ready = max(ready, memory.since + limits.lost_for)
        if now < ready:
            due.append(ready)
            continue
        slots = view.find_slots(job.engine.artifact)
        if slots is not None and slots.free - slots_given[job.engine] < job.slots:
            free = max(0, slots.free - slots_given[job.engine])
            waits = f"it waits for slots at {job.site}: {free} are free, it needs {job.slots}"
            memories[job.key] = replace(memory, waits=waits)
            continue
        lost = memory.observed is Sight.ABSENT and now - memory.since < limits.zombies_for
        if lost and slots is not None and _has_zombies(view, watched):
            waits = f"it waits until tasks without a job at {job.site} have released their slots"
            memories[job.key] = replace(memory, waits=waits)
            continue
        slots_given[job.engine] += job.slots
        yield job


def _has_zombies(view: EngineView, watched: Mapping[str, Watched]) -> bool:
    """Whether slots are in use that belong to no job known to the engine: the workers of a
    restarted master may run old tasks until they notice the restart.

    `watched` are the watched jobs by id. False if foreign jobs run there: then it cannot be
    determined.
    """
    running = [job.engine_job_id for job in view.jobs.values() if not job.state.terminal]
    if view.slots is None or any(engine_job_id not in watched for engine_job_id in running):
        return False
    return view.slots.total - view.slots.free > sum(
        watched[one].slots for one in running if watched[one].engine.artifact not in view.beside
    )


def _update(
    now: float,
    job: Watched,
    view: EngineView | None,
    progress: Progress | None,
    old: JobMemory | None,
    limits: Limits,
) -> JobMemory:
    """The memory of a job after this poll."""
    observed = observe(view, job.engine_job_id, job.engine.artifact)
    if old is not None and progress is None and _is_as_before(now, job, observed, old, limits):
        return old  # as nearly all are at nearly every poll
    same = old is not None and old.engine_job_id == job.engine_job_id
    repairs, not_before = 0, float("-inf")
    if old is not None and (same or job.repaired):
        repairs, not_before = old.repairs, old.not_before
    course = old.course if old is not None and same else None
    if observed is not RunState.RUNNING:
        course = None
    elif progress is not None:
        course = follow(course, progress, now)
    stall = course.explain_stall(now, limits.stall) if course is not None else None
    if old is not None and old.job is job and old.observed is observed and old.stall == stall:
        state, since = old.state, old.since  # judging takes most of the time
    else:
        state, since = judge(job.facts(observed, stall)).momentary, now
        if old is not None and same and old.state is state:
            left = (old.observed is Sight.ABSENT) is not (observed is Sight.ABSENT)
            since = now if left else old.since
    if repairs and state is JobState.RUNNING and now - since >= limits.steady:
        repairs, not_before = 0, float("-inf")
    return JobMemory(job, state, since, observed, stall, repairs, not_before, course)


def _is_as_before(
    now: float, job: Watched, observed: Observed, old: JobMemory, limits: Limits
) -> bool:
    """Whether a job runs as at the last poll, with nothing to tell of it."""
    return (
        old.job is job
        and old.observed is observed is RunState.RUNNING
        and not (old.stall or old.waits or old.repairs)
        and (old.course is None or old.course.explain_stall(now, limits.stall) is None)
    )
