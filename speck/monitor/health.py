"""Decides which jobs are unhealthy, and when to repair them. Pure: no I/O, the time is passed in.

Each poll of the sites is judged together with the `Memory` of earlier polls. An unreachable site is
never a fault of its jobs: only an engine that answers can report a job as failed or unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from speck.model.observation import EngineView, RunState

Key = tuple[str, str]
"""(scope, job name)"""


class Health(StrEnum):
    """The health of a job that should run."""

    RUNNING = "running"
    STARTING = "starting"
    STALLED = "stalled"  # it runs without progress
    RESTARTING = "restarting"  # the engine itself restarts it
    STOPPING = "stopping"  # it is ending, and speck did not request that
    ENDED = "ended"  # cancelled or finished, not by speck
    FAILED = "failed"
    LOST = "lost"  # its engine answers and does not know the job
    UNREACHABLE = "unreachable"

    @property
    def broken(self) -> bool:
        """Whether it will not run again by itself."""
        return self in (Health.ENDED, Health.FAILED, Health.LOST)


_HEALTH_OF_STATE = {
    RunState.RUNNING: Health.RUNNING,
    RunState.STARTING: Health.STARTING,
    RunState.RESTARTING: Health.RESTARTING,
    RunState.STOPPING: Health.STOPPING,
    RunState.FINISHED: Health.ENDED,
    RunState.CANCELED: Health.ENDED,
    RunState.FAILED: Health.FAILED,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """All in seconds, except counts.

    A job that breaks again is repaired after `wait_first`, then twice that, and so on up to
    `wait_most`; once it has run for `steady` the waits begin anew. A job must be unknown to its
    engine for `lost_for` before it is lost: a restarted master may recover its jobs. Its workers
    may still run old tasks; their end is awaited for at most `zombies_for`. A job without progress
    for `stall_intervals` checkpoint intervals, at least `stall_least` and `stall_polls` polls, is
    stalled. Sites that become unreachable within `at_once` of each other count as one failure, and
    suspend repairs for at most `hold_for`.
    """

    wait_first: float = 1.0
    wait_most: float = 300.0
    steady: float = 300.0
    lost_for: float = 1.0
    zombies_for: float = 120.0
    stall_intervals: int = 3
    stall_least: float = 30.0
    stall_polls: int = 3
    at_once: float = 60.0
    hold_for: float = 600.0
    least_silent: int = 2

    def wait(self, repairs: int) -> float:
        """Seconds to wait after a job's n-th repair."""
        return float(min(self.wait_first * 2.0 ** min(repairs - 1, 60), self.wait_most))


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Watched:
    """A job that should run: its newest incarnation. With `repair` false its health is only
    reported, for the reason given by `since`. A `busy` job is being changed, and is not judged.
    `repaired`: the incarnation was started by a repair; `unstarted`: it never ran, since it failed,
    or was refused, and speck has cancelled it. `may_restart`: it is restarted when its brokers'
    addresses have changed, whatever its composition says of drift."""

    scope: str
    job_name: str
    site: str
    engine_job_id: str
    slots: int = 1
    repair: bool = True
    busy: bool = False
    since: str = ""
    repaired: bool = True
    unstarted: bool = False
    may_restart: bool = True
    key: Key = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.scope, self.job_name))


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running job. `completed` is the id of its newest checkpoint; `taken` counts
    the messages that it has acknowledged, `sent` those that its producers sent, `lag` those sent
    but not taken. `folder` is that of its checkpoints. None: unknown."""

    interval_s: float | None
    completed: int | None = None
    taken: int | None = None
    sent: int | None = None
    lag: int | None = None
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class _Standstill:
    """A value that does not change: since when, and for how many polls."""

    value: int | None
    since: float
    polls: int = 0

    def update(self, value: int | None, now: float) -> _Standstill:
        if value != self.value:
            return _Standstill(value, now, 1)
        return _Standstill(value, self.since, self.polls + 1)


@dataclass(frozen=True, slots=True)
class _Feed:
    """Messages sent while the job took none: `rises` counts increases, `first` is the time of the
    first."""

    sent: int
    rises: int = 0
    first: float = 0.0


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What earlier polls showed of a job; `repairs` and `not_before` outlive an incarnation that is
    repaired, but no other: what a user starts begins with a clean slate. `waits` says what a repair
    waits for at the job's site."""

    engine_job_id: str
    health: Health
    since: float
    reason: str | None = None
    repairs: int = 0
    not_before: float = float("-inf")
    interval_s: float | None = None
    checkpoint: _Standstill | None = None
    taken: _Standstill | None = None
    feed: _Feed | None = None
    waits: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier polls showed: of jobs; since when sites are unreachable; and whether repairs are
    `on_hold` since sites became unreachable at the same time."""

    jobs: Mapping[Key, JobMemory] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    on_hold: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The new memory, the jobs to repair now by scope, and when (monotonic) the next poll is due if
    that is before the regular one."""

    memory: Memory
    repair: Mapping[str, frozenset[str]]
    due: float | None = None


def wants_progress(memory: Memory, key: Key, now: float, intervals: float = 1.0) -> bool:
    """Whether to ask the engine for a running job's progress: about once in so many checkpoint
    intervals, and at each poll once it has made none for so long."""
    memory_of_job = memory.jobs.get(key)
    if (
        memory_of_job is None
        or memory_of_job.checkpoint is None
        or memory_of_job.interval_s is None
    ):
        return True
    return now - memory_of_job.checkpoint.since >= intervals * memory_of_job.interval_s


def decide(
    now: float,
    sites: Mapping[str, EngineView | None],
    jobs: Iterable[Watched],
    progress: Mapping[Key, Progress],
    before: Memory,
    limits: Limits = LIMITS,
) -> Decision:
    """Judge one poll, made at `now` (monotonic seconds).

    `sites` holds every site that was polled, with None for one that did not answer. A job that is
    busy, or whose site was not polled, keeps its memory; one that is not in `jobs` any more is
    forgotten.
    """
    jobs_to_judge = list(jobs)
    silent = {site: before.silent.get(site, now) for site, view in sites.items() if view is None}
    is_on_hold = _is_on_hold(now, silent, len(sites), before.on_hold, limits)
    memories: dict[Key, JobMemory] = {}
    for job in jobs_to_judge:
        old = before.jobs.get(job.key)
        if job.busy:
            if old is not None:
                memories[job.key] = replace(old, checkpoint=None, taken=None, feed=None)
        elif job.site in sites:
            memories[job.key] = _judge(
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
    return Decision(
        Memory(memories, silent, is_on_hold),
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
    slots_given: Counter[str] = Counter()
    broken = [
        job
        for job in jobs
        if job.repair
        and not job.busy
        and (memory := memories.get(job.key)) is not None
        and memory.health.broken
    ]
    slots = {job.engine_job_id: job.slots for job in jobs} if broken else {}
    for job in sorted(broken, key=lambda job: job.key):
        memory, view = memories[job.key], sites.get(job.site)
        if view is None:
            continue
        ready = memory.not_before
        if memory.health is Health.LOST:
            ready = max(ready, memory.since + limits.lost_for)
        if now < ready:
            due.append(ready)
            continue
        if view.slots is not None and view.slots.free - slots_given[job.site] < job.slots:
            free = max(0, view.slots.free - slots_given[job.site])
            waits = f"it waits for slots at {job.site}: {free} are free, it needs {job.slots}"
            memories[job.key] = replace(memory, waits=waits)
            continue
        lost = memory.health is Health.LOST and now - memory.since < limits.zombies_for
        if lost and _has_zombies(view, slots):
            waits = f"it waits until tasks without a job at {job.site} have released their slots"
            memories[job.key] = replace(memory, waits=waits)
            continue
        slots_given[job.site] += job.slots
        yield job


def _has_zombies(view: EngineView, slots: Mapping[str, int]) -> bool:
    """Whether slots are in use that belong to no job known to the engine: the workers of a
    restarted master may run old tasks until they notice the restart.

    `slots` are those of the watched jobs, by id. False if foreign jobs run there: then it cannot be
    determined.
    """
    running = [job.engine_job_id for job in view.jobs.values() if not job.state.terminal]
    if view.slots is None or any(engine_job_id not in slots for engine_job_id in running):
        return False
    return view.slots.total - view.slots.free > sum(slots[one] for one in running)


def _judge(
    now: float,
    job: Watched,
    view: EngineView | None,
    progress: Progress | None,
    old: JobMemory | None,
    limits: Limits,
) -> JobMemory:
    """The memory of a job after this poll."""
    same = old is not None and old.engine_job_id == job.engine_job_id
    health = _judge_health(job, view)
    if (
        old is not None
        and same
        and progress is None
        and health is old.health is Health.RUNNING
        and not (old.reason or old.waits or old.repairs)
        and _explain_stall(old, now, limits) is None
    ):
        return old  # as nearly all are at nearly every poll
    memory = old if old is not None else JobMemory(job.engine_job_id, Health.RUNNING, now)
    if not same:
        memory = JobMemory(job.engine_job_id, memory.health, now)
        if old is not None and job.repaired:
            memory = replace(memory, repairs=old.repairs, not_before=old.not_before)
    reason = None
    if health is Health.RUNNING:
        memory = _note_progress(memory, progress, now)
        reason = _explain_stall(memory, now, limits)
        health = Health.STALLED if reason else Health.RUNNING
    else:
        memory = replace(memory, checkpoint=None, taken=None, feed=None)
    if not same or old is None or health is not old.health:
        memory = replace(memory, health=health, since=now)
    if memory.repairs and health is Health.RUNNING and now - memory.since >= limits.steady:
        memory = replace(memory, repairs=0, not_before=float("-inf"))
    if memory.reason == reason and memory.waits is None:
        return memory
    return replace(memory, reason=reason, waits=None)


def _judge_health(job: Watched, view: EngineView | None) -> Health:
    if view is None:
        return Health.UNREACHABLE
    engine_job = view.jobs.get(job.engine_job_id)
    if engine_job is None:
        return Health.LOST
    health = _HEALTH_OF_STATE[engine_job.state]
    return Health.FAILED if health is Health.ENDED and job.unstarted else health


def _note_progress(memory: JobMemory, progress: Progress | None, now: float) -> JobMemory:
    if progress is None:
        return memory
    checkpoint = memory.checkpoint or _Standstill(progress.completed, now)
    taken = memory.taken or _Standstill(progress.taken, now)
    has_moved = progress.taken != taken.value
    feed = memory.feed
    if progress.sent is None or progress.taken is None or not progress.lag:
        feed = None  # no messages are known to wait
    elif feed is None or has_moved:
        feed = _Feed(progress.sent)
    elif progress.sent > feed.sent:
        feed = _Feed(progress.sent, feed.rises + 1, feed.first if feed.rises else now)
    elif progress.sent < feed.sent:  # a producer begins to count again in a new epoch
        feed = replace(feed, sent=progress.sent)
    return JobMemory(  # `replace` takes three times as long, and most jobs come here
        memory.engine_job_id,
        memory.health,
        memory.since,
        memory.reason,
        memory.repairs,
        memory.not_before,
        progress.interval_s,
        checkpoint.update(progress.completed, now),
        taken.update(progress.taken, now),
        feed,
        memory.waits,
    )


def _explain_stall(memory: JobMemory, now: float, limits: Limits) -> str | None:
    """Explain why a running job counts as stalled; None if it makes progress, or if that is
    unknown."""
    if memory.interval_s is None or memory.checkpoint is None:
        return None
    long = max(limits.stall_intervals * memory.interval_s, limits.stall_least)
    idle = memory.checkpoint
    if idle.polls >= limits.stall_polls and now - idle.since > long:
        return f"no checkpoint completed for {now - idle.since:.0f} s"
    # One rise proves nothing: its messages may have been taken before the producer reported them.
    taken, feed = memory.taken, memory.feed
    if taken is None or feed is None or feed.rises < 2 or taken.polls < limits.stall_polls:
        return None
    if now - feed.first > long:
        return f"took nothing of its input for {now - taken.since:.0f} s while more was sent"
    return None
