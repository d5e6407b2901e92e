"""What is amiss with jobs that ought to run, and when to mend it. Pure: no I/O, time is given.

Each look at the sites is judged together with what earlier looks left in `Memory`. Silence is
never a fault of a job: only an engine that answers can say that a job has failed or is gone.
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
    """How a job is that ought to run."""

    RUNNING = "running"
    STARTING = "starting"
    STALLED = "stalled"  # it runs, and does not get on
    RESTARTING = "restarting"  # the engine itself brings it back
    STOPPING = "stopping"  # it is on its way to an end that nobody asked for
    ENDED = "ended"  # cancelled or finished, and nobody asked for that
    FAILED = "failed"
    LOST = "lost"  # its engine answers and knows no such job
    UNREACHABLE = "unreachable"

    @property
    def broken(self) -> bool:
        """Whether it will not run again by itself."""
        return self in (Health.ENDED, Health.FAILED, Health.LOST)


_SEEN = {
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
    """All in seconds, but for counts.

    A job that breaks again is mended after `wait_first`, twice that, ... up to `wait_most`;
    once it has run for `steady` that begins anew. A job that its engine does not know must be
    unknown for `lost_for`: a master that comes back may bring its jobs with it, and its workers
    may run old tasks on: those are waited for at most `zombies_for`. What does not
    get on for `stall_intervals` checkpoint intervals, at least `stall_least` and `stall_looks`
    looks, is stalled. Sites that fall silent within `at_once` of each other vanish together, and
    hold up mending for at most `held_for`.
    """

    wait_first: float = 1.0
    wait_most: float = 300.0
    steady: float = 300.0
    lost_for: float = 1.0
    zombies_for: float = 120.0
    stall_intervals: int = 3
    stall_least: float = 30.0
    stall_looks: int = 3
    at_once: float = 60.0
    held_for: float = 600.0
    least_silent: int = 2

    def wait(self, mends: int) -> float:
        """How long to leave a job alone after its n-th mending."""
        return float(min(self.wait_first * 2.0 ** min(mends - 1, 60), self.wait_most))


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Watched:
    """A job that ought to run: its newest incarnation. With `mend` false, what is amiss is
    shown only, `since` something; one that is `busy` is being changed, and is not judged."""

    scope: str
    job_name: str
    site: str
    engine_job_id: str
    slots: int = 1
    mend: bool = True
    busy: bool = False
    since: str = ""

    @property
    def key(self) -> Key:
        return self.scope, self.job_name


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job has got. `completed` is the id of its newest checkpoint; `taken`
    counts the messages that it has acknowledged, `sent` those that jobs sent it, `lag` those
    of them that it has not taken. None: not known."""

    interval_s: float | None
    completed: int | None = None
    taken: int | None = None
    sent: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class _Standstill:
    """A value that did not change: since when, and at how many looks."""

    value: int | None
    since: float
    polls: int = 0

    def seen(self, value: int | None, now: float) -> _Standstill:
        if value != self.value:
            return _Standstill(value, now, 1)
        return replace(self, polls=self.polls + 1)


@dataclass(frozen=True, slots=True)
class _Feed:
    """What producers sent while the job took nothing: how often more, first when."""

    sent: int
    rises: int = 0
    first: float = 0.0


@dataclass(frozen=True, slots=True)
class JobMemory:
    """What earlier looks said of a job; `mends` and `not_before` outlive its incarnations.
    `waits` says what a broken one waits for at its site before it is mended."""

    engine_job_id: str
    health: Health
    since: float
    reason: str | None = None
    mends: int = 0
    not_before: float = float("-inf")
    interval_s: float | None = None
    checkpoint: _Standstill | None = None
    taken: _Standstill | None = None
    feed: _Feed | None = None
    waits: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier looks said: of jobs, since when sites are silent, and whether they vanished
    together, so that nothing is mended."""

    jobs: Mapping[Key, JobMemory] = field(default_factory=dict)
    silent: Mapping[str, float] = field(default_factory=dict)
    held: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to remember, which jobs to mend now by scope, and when (monotonic) something may be
    due before the next regular look."""

    memory: Memory
    mend: Mapping[str, frozenset[str]]
    due: float | None = None


def wants_progress(memory: Memory, key: Key, now: float) -> bool:
    """Whether it is worth asking an engine how far a running job is: about once an interval."""
    known = memory.jobs.get(key)
    if known is None or known.checkpoint is None or known.interval_s is None:
        return True
    return now - known.checkpoint.since >= known.interval_s


def decide(
    now: float,
    sites: Mapping[str, EngineView | None],
    jobs: Iterable[Watched],
    progress: Mapping[Key, Progress],
    before: Memory,
    limits: Limits = LIMITS,
) -> Decision:
    """Judge one look, made at `now` (monotonic seconds).

    `sites` holds every registered site that was looked at: None for one that is silent. A job
    whose site is missing there, or that is busy, keeps what is known of it; one that is not in
    `jobs` any more is forgotten.
    """
    watched = list(jobs)
    silent = {site: before.silent.get(site, now) for site, view in sites.items() if view is None}
    held = _held(now, silent, len(sites), before.held, limits)
    known: dict[Key, JobMemory] = {}
    for job in watched:
        old = before.jobs.get(job.key)
        if job.busy:
            if old is not None:
                known[job.key] = replace(old, checkpoint=None, taken=None, feed=None)
        elif job.site in sites:
            known[job.key] = _judged(now, job, sites[job.site], progress.get(job.key), old, limits)
        elif old is not None:
            known[job.key] = old
    due: list[float] = []
    mend: dict[str, set[str]] = {}
    if not held:
        for job in _to_mend(now, watched, sites, known, due, limits):
            memory = known[job.key]
            mends = memory.mends + 1
            known[job.key] = replace(memory, mends=mends, not_before=now + limits.wait(mends))
            mend.setdefault(job.scope, set()).add(job.job_name)
    return Decision(
        Memory(known, silent, held),
        {scope: frozenset(names) for scope, names in mend.items()},
        min(due, default=None),
    )


def _held(
    now: float, silent: Mapping[str, float], sites: int, before: bool, limits: Limits
) -> bool:
    """Whether half of the sites, and at least two, are silent and fell so at once.

    Then the fault is rather between here and there. It is held until fewer are silent, or it has
    lasted so long that the sites that do answer must not wait any more.
    """
    enough = max(limits.least_silent, (sites + 1) // 2)
    if len(silent) < enough:
        return False
    times = sorted(silent.values())
    if now - times[enough - 1] > limits.held_for:
        return False
    together = any(
        times[first + enough - 1] - times[first] <= limits.at_once
        for first in range(len(times) - enough + 1)
    )
    return before or together


def _to_mend(
    now: float,
    watched: list[Watched],
    sites: Mapping[str, EngineView | None],
    known: dict[Key, JobMemory],
    due: list[float],
    limits: Limits,
) -> Iterable[Watched]:
    """Broken jobs whose time has come and for which there are slots, in the order of names."""
    given: Counter[str] = Counter()
    slots = {job.engine_job_id: job.slots for job in watched}
    for job in sorted(watched, key=lambda job: job.key):
        memory, view = known.get(job.key), sites.get(job.site)
        if memory is None or view is None or not job.mend or job.busy:
            continue
        if not memory.health.broken:
            continue
        ready = memory.not_before
        if memory.health is Health.LOST:
            ready = max(ready, memory.since + limits.lost_for)
        if now < ready:
            due.append(ready)
            continue
        if view.slots is not None and view.slots.free - given[job.site] < job.slots:
            free = max(0, view.slots.free - given[job.site])
            waits = f"it waits for slots at {job.site}: {free} are free, it needs {job.slots}"
            known[job.key] = replace(memory, waits=waits)
            continue
        lost = memory.health is Health.LOST and now - memory.since < limits.zombies_for
        if lost and _zombies(view, slots):
            waits = f"it waits until tasks without a job at {job.site} have given back their slots"
            known[job.key] = replace(memory, waits=waits)
            continue
        given[job.site] += job.slots
        yield job


def _zombies(view: EngineView, slots: Mapping[str, int]) -> bool:
    """Whether slots are in use that no job which the engine knows explains: the workers of a
    master that was restarted may run the old tasks on until they miss it.

    `slots` are those of the watched jobs, by id. Beside jobs of others it cannot be told.
    """
    known = [seen.engine_job_id for seen in view.jobs.values() if not seen.state.terminal]
    if view.slots is None or any(engine_job_id not in slots for engine_job_id in known):
        return False
    return view.slots.total - view.slots.free > sum(slots[one] for one in known)


def _judged(
    now: float,
    job: Watched,
    view: EngineView | None,
    progress: Progress | None,
    old: JobMemory | None,
    limits: Limits,
) -> JobMemory:
    """What is known of a job after this look."""
    same = old is not None and old.engine_job_id == job.engine_job_id
    memory = old if old is not None else JobMemory(job.engine_job_id, Health.RUNNING, now)
    if not same:
        memory = JobMemory(
            job.engine_job_id, memory.health, now, None, memory.mends, memory.not_before
        )
    health = _health(job, view)
    reason = None
    if health is Health.RUNNING:
        memory = _progressed(memory, progress, now)
        reason = _stalled(memory, now, limits)
        health = Health.STALLED if reason else Health.RUNNING
    else:
        memory = replace(memory, checkpoint=None, taken=None, feed=None)
    if not same or old is None or health is not old.health:
        memory = replace(memory, health=health, since=now)
    if health is Health.RUNNING and now - memory.since >= limits.steady:
        memory = replace(memory, mends=0, not_before=float("-inf"))
    return replace(memory, reason=reason, waits=None)


def _health(job: Watched, view: EngineView | None) -> Health:
    if view is None:
        return Health.UNREACHABLE
    seen = view.jobs.get(job.engine_job_id)
    return Health.LOST if seen is None else _SEEN[seen.state]


def _progressed(memory: JobMemory, progress: Progress | None, now: float) -> JobMemory:
    if progress is None:
        return memory
    checkpoint = memory.checkpoint or _Standstill(progress.completed, now)
    taken = memory.taken or _Standstill(progress.taken, now)
    moved = progress.taken != taken.value
    feed = memory.feed
    if progress.sent is None or progress.taken is None or not progress.lag:
        feed = None  # nothing waits for it, as far as can be told
    elif feed is None or moved:
        feed = _Feed(progress.sent)
    elif progress.sent > feed.sent:
        feed = _Feed(progress.sent, feed.rises + 1, feed.first if feed.rises else now)
    elif progress.sent < feed.sent:  # a producer counts anew in another epoch
        feed = replace(feed, sent=progress.sent)
    return replace(
        memory,
        interval_s=progress.interval_s,
        checkpoint=checkpoint.seen(progress.completed, now),
        taken=taken.seen(progress.taken, now),
        feed=feed,
    )


def _stalled(memory: JobMemory, now: float, limits: Limits) -> str | None:
    """Why a job that runs counts as stalled; None: it gets on, or that is not known."""
    if memory.interval_s is None or memory.checkpoint is None:
        return None
    long = max(limits.stall_intervals * memory.interval_s, limits.stall_least)
    idle = memory.checkpoint
    if idle.polls >= limits.stall_looks and now - idle.since > long:
        return f"no checkpoint completed for {now - idle.since:.0f} s"
    # One rise proves nothing: it may have been taken before its producer told it.
    taken, feed = memory.taken, memory.feed
    if taken is None or feed is None or feed.rises < 2 or taken.polls < limits.stall_looks:
        return None
    if now - feed.first > long:
        return f"took nothing of its input for {now - taken.since:.0f} s while more was sent"
    return None
