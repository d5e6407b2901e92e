"""Carries out a plan: as much at the same time as its order and each site's bound allow.

The executor holds no business rule. It starts steps whose predecessors are done, retries what
may work later, stores each outcome before a dependent starts, and leaves the rest of the graph
alone when one step fails. A step whose site does not answer is `blocked`: it goes on when the
site answers again, and the other branches do not wait for it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from speck import failpoints
from speck.clock import Clock, rfc3339
from speck.deploy.limiter import Limiter
from speck.deploy.operations import Done, Operations, Outcome, Waiting
from speck.errors import PermanentError, SpeckError, TransientError, UnreachableError, at_site
from speck.model.change import Change, ChangeState, OperationRecord, OperationState
from speck.model.composition import visible_name
from speck.model.observation import EngineJob
from speck.model.plan import Operation, Return
from speck.sites.connections import Connections
from speck.store.records import Records
from speck.store.tables import Batch


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much at once, and how patient. Times in seconds.

    `per_site` holds over all changes that share their `Limiter`, `workers` for each change. An
    engine is asked every `poll_s` to `poll_most_s`; every `poll_calm_s` while calls are under way
    and no other step waits for what it would answer.
    """

    workers: int = 256
    per_site: int = 16
    poll_s: float = 0.05
    poll_most_s: float = 0.2
    poll_calm_s: float = 1.0
    retry_first_s: float = 0.2
    retry_most_s: float = 5.0
    retry_for_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Result:
    step_id: int
    outcome: Outcome | None
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Look:
    site: str
    jobs: Mapping[str, EngineJob] | None
    error: BaseException | None
    took_s: float


@dataclass(frozen=True, slots=True)
class _Task:
    """A call to make for a step: its operation, or what ends the wait that this began."""

    step_id: int
    finish: Callable[[], Outcome] | None = None


@dataclass(slots=True)
class _Wait:
    waiting: Waiting
    until: float
    awaited: bool = True
    """Whether other steps wait for the end of this one."""


class _Waits(dict[int, _Wait]):
    """Steps that wait, by id; known by the site of what they wait for, too, so that among
    thousands none is searched for. `awaited`: how many at a site others wait for. `due`: none but
    blocked ones is overdue before that."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str | None, dict[int, _Wait]] = {}
        self.awaited: Counter[str | None] = Counter()
        self.due = math.inf

    def __setitem__(self, step_id: int, wait: _Wait) -> None:
        assert step_id not in self
        super().__setitem__(step_id, wait)
        self.at.setdefault(wait.waiting.site, {})[step_id] = wait
        self.awaited[wait.waiting.site] += wait.awaited
        self.due = min(self.due, wait.until)

    def __delitem__(self, step_id: int) -> None:
        wait = self[step_id]
        site = wait.waiting.site
        super().__delitem__(step_id)
        self.awaited[site] -= wait.awaited
        del self.at[site][step_id]
        if not self.at[site]:
            del self.at[site]


@dataclass(slots=True, eq=False)
class Execution:
    """One run of one change. `run` blocks until the change is over."""

    change: Change
    operations: Operations
    connections: Connections
    records: Records
    clock: Clock
    bounds: Bounds = field(default_factory=Bounds)
    on_progress: Callable[[], None] = lambda: None
    shared: Limiter | None = None
    """Limits the calls of all changes together; without it this one has its own."""
    _limiter: Limiter = field(init=False)
    _cancel: threading.Event = field(default_factory=threading.Event)
    _halted: threading.Event = field(default_factory=threading.Event)
    _inbox: queue.SimpleQueue[_Result | _Look | None] = field(default_factory=queue.SimpleQueue)
    _by_id: dict[int, OperationRecord] = field(default_factory=dict)
    _missing: dict[int, int] = field(default_factory=dict)
    _dependents: dict[int, list[int]] = field(default_factory=dict)
    _ready: dict[str, deque[_Task]] = field(default_factory=dict)
    _active: int = 0
    _more: bool = False
    _waits: _Waits = field(default_factory=_Waits)
    _looking: set[str] = field(default_factory=set)
    _looked: dict[str, float] = field(default_factory=dict)
    _patience: dict[str, float] = field(default_factory=dict)
    _timers: list[tuple[float, int, int]] = field(default_factory=list)
    _tick: itertools.count[int] = field(default_factory=itertools.count)
    _failing: dict[int, tuple[float, float]] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)
    _begun: dict[int, float] = field(default_factory=dict)
    _states: Counter[OperationState] = field(default_factory=Counter)
    _succeeded: list[tuple[OperationRecord, Done]] = field(default_factory=list)
    failure: SpeckError | None = None
    """The first error that stopped a step for good; decides the HTTP status of a job's call."""

    def __post_init__(self) -> None:
        self._limiter = self.shared or Limiter(self.bounds.per_site)

    def cancel(self) -> None:
        """Start no further operation; `run` ends once those under way have ended."""
        self._cancel.set()
        self.wake()

    def halt(self) -> None:
        """As `cancel`, but what has not ended stays as it is in the store: the service stops,
        and the change is to go on at its next start."""
        self._halted.set()
        self.cancel()

    def wake(self) -> None:
        """Look again at what there is to do."""
        self._inbox.put(None)

    def run(self) -> ChangeState:
        """Carry out the whole plan and return how the change ended."""
        for record in self.change.operations:
            step = record.step
            self._by_id[step.id] = record
            self._states[record.state] += 1
            self._missing[step.id] = len(step.after)
            for before in step.after:
                self._dependents.setdefault(before, []).append(step.id)
        first = [step_id for step_id, missing in self._missing.items() if not missing]
        for step_id in sorted(first, key=lambda each: -len(self._dependents.get(each, ()))):
            self._enqueue(step_id)  # what most others wait for is the first
        sites = {record.step.operation.site for record in self.change.operations}
        most = min(len(self.change.operations), self.bounds.per_site * len(sites)) + len(sites)
        workers = max(1, min(self.bounds.workers, most))
        try:
            with ThreadPoolExecutor(workers, thread_name_prefix="operation") as pool:
                while self._step(pool):
                    pass
        finally:
            self._limiter.leave(self)
        return self._finish()

    # -- the loop -------------------------------------------------------------------------

    def _step(self, pool: ThreadPoolExecutor) -> bool:
        now = self.clock.monotonic()
        if self._cancel.is_set():
            self._drop_pending()
        self._wake(now)
        self._launch(pool)
        self._poll(pool, now)
        if not (self._active or self._waits or self._timers or any(self._ready.values())):
            return False
        self._note_blocked()
        try:
            message = self._inbox.get(not self._more, self._pause(now))
        except queue.Empty:
            return True
        while message is not None:
            self._receive(message)
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                break
        for tidy_up in self._store_successes():
            pool.submit(tidy_up)
        return True

    def _pause(self, now: float) -> float:
        if self._more:
            return 0.0
        pauses = [1.0]
        if self._timers:
            pauses.append(self._timers[0][0] - now)
        if self._waits:
            pauses.append(self.bounds.poll_s)
        return max(0.001, min(pauses))

    def _enqueue(self, step_id: int) -> None:
        site = self._by_id[step_id].step.operation.site
        self._ready.setdefault(site, deque()).append(_Task(step_id))

    def _set(self, record: OperationRecord, state: OperationState) -> None:
        self._states[record.state] -= 1
        self._states[state] += 1
        record.state = state

    def _wake(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            self._enqueue(heapq.heappop(self._timers)[2])
        if now > self._waits.due:
            self._waits.due = math.inf
            for step_id, wait in list(self._waits.items()):
                if self._by_id[step_id].state is OperationState.BLOCKED:
                    continue  # time spent without an answer does not count
                if now > wait.until:
                    del self._waits[step_id]
                    self._fail(step_id, PermanentError(_overdue(wait.waiting)))
                else:
                    self._waits.due = min(self._waits.due, wait.until)
        for step_id, wait in list(self._waits.at.get(None, {}).items()):
            if wait.waiting.ready({}):
                self._end_wait(step_id, wait)

    def _launch(self, pool: ThreadPoolExecutor) -> None:
        """Begin what is ready, a few steps at each site: what comes back meanwhile may let
        others begin elsewhere."""
        tasks: list[_Task] = []
        self._more = False
        for site, ready in self._ready.items():
            for _ in range(min(len(ready), _LAUNCHED_AT_ONCE)):
                if not self._limiter.acquire(site, self):
                    break
                tasks.append(ready.popleft())
            else:
                self._more |= bool(ready)
        new = [self._by_id[task.step_id] for task in tasks if task.finish is None]
        for record in new:
            failpoints.reached(failpoints.BEFORE_INTENT, record.step.operation.kind)
        begun = [self._begin(record) for record in new]
        if begun:
            self.records.write(self.records.put_operations(self.change.id, begun))
            self.on_progress()
        for task in tasks:
            self._submit(pool, task)

    def _begin(self, record: OperationRecord) -> OperationRecord:
        record.attempts += 1
        self._begun.setdefault(record.step.id, self.clock.monotonic())
        if record.started is None:
            record.started = rfc3339(self.clock.now())
        if record.state is not OperationState.BLOCKED:
            self._set(record, OperationState.RUNNING)
        return record

    def _submit(self, pool: ThreadPoolExecutor, task: _Task) -> None:
        operation = self._by_id[task.step_id].step.operation
        action = task.finish or partial(self.operations.carry_out, operation)
        self._active += 1

        def work() -> None:
            try:
                with failpoints.carrying_out(operation.kind):
                    outcome = action()
                    if task.finish is None:
                        failpoints.reached(failpoints.AFTER_ANSWER)
                self._inbox.put(_Result(task.step_id, outcome, None))
            except BaseException as error:  # the loop decides by type
                self._inbox.put(_Result(task.step_id, None, error))

        pool.submit(work)

    def _poll(self, pool: ThreadPoolExecutor, now: float) -> None:
        """Ask each engine that something waits for, one question at a time."""
        for site in self._waits.at.keys() - self._looking:
            if site is None or now - self._looked.get(site, now) < self._patience_with(site):
                continue
            self._looking.add(site)

            def work(site: str = site) -> None:
                jobs: Mapping[str, EngineJob] | None = None
                failure: BaseException | None = None
                began = self.clock.monotonic()
                try:
                    jobs = self.connections.engine(site).jobs()
                except BaseException as error:  # the loop decides by type
                    failure = error
                self._inbox.put(_Look(site, jobs, failure, self.clock.monotonic() - began))

            pool.submit(work)

    def _patience_with(self, site: str) -> float:
        """How long an engine is left alone after a look. A look costs it, and the way to it, as
        much as other calls do."""
        if self._active and not self._waits.awaited[site]:
            return self.bounds.poll_calm_s
        return self._patience.get(site, 0.0)

    # -- what comes back ------------------------------------------------------------------

    def _receive(self, message: _Result | _Look) -> None:
        if isinstance(message, _Look):
            self._receive_look(message)
            return
        step_id = message.step_id
        self._active -= 1
        self._limiter.release(self._by_id[step_id].step.operation.site, self)
        if message.error is not None:
            self._fail(step_id, message.error)
            return
        if isinstance(message.outcome, Waiting):
            now = self.clock.monotonic()
            limit = now + message.outcome.limit_s
            site = message.outcome.site
            if site and site not in self._waits.at:
                self._looked[site] = now
                self._patience[site] = self.bounds.poll_s
            awaited = bool(self._dependents.get(step_id))
            self._waits[step_id] = _Wait(message.outcome, limit, awaited)
            self._by_id[step_id].progress = message.outcome.progress
            self._unblock(step_id)
        elif message.outcome is not None:
            self._succeed(step_id, message.outcome)

    def _receive_look(self, poll: _Look) -> None:
        self._looking.discard(poll.site)
        now = self._looked[poll.site] = self.clock.monotonic()
        found = False
        for step_id, wait in list(self._waits.at.get(poll.site, {}).items()):
            if poll.jobs is None:
                if isinstance(poll.error, SpeckError):  # no word about the job: go on waiting
                    self._by_id[step_id].error = str(poll.error)
                    self._mark_blocked(step_id)
                elif poll.error is not None:
                    del self._waits[step_id]
                    self._fail(step_id, poll.error)
                continue
            if self._unblock(step_id):
                wait.until = now + wait.waiting.limit_s
                self._waits.due = min(self._waits.due, wait.until)
            if wait.waiting.ready(poll.jobs):
                self._end_wait(step_id, wait)
                found = True
        # looks cost a small site's engine as much as work does: ask less and less often, but
        # soon again where something has just come to its end, as much else may at that moment
        longer = 1.5 * self._patience.get(poll.site, self.bounds.poll_s)
        soon = max(self.bounds.poll_s, _PAUSE_LOOKS * poll.took_s)
        self._patience[poll.site] = min(soon if found else longer, self.bounds.poll_most_s)

    def _end_wait(self, step_id: int, wait: _Wait) -> None:
        del self._waits[step_id]
        ready = self._ready.setdefault(self._by_id[step_id].step.operation.site, deque())
        ready.appendleft(_Task(step_id, wait.waiting.finish))

    def _unblock(self, step_id: int) -> bool:
        record = self._by_id[step_id]
        if record.state is not OperationState.BLOCKED:
            return False
        self._set(record, OperationState.RUNNING)
        record.error = None
        operation = record.step.operation
        self.records.write(
            self.records.put_operations(self.change.id, [record]),
            self._event(operation, f"goes on: {operation.site} answers again"),
        )
        return True

    def _succeed(self, step_id: int, done: Done) -> None:
        record = self._by_id[step_id]
        self._set(record, OperationState.DONE)
        record.ended = rfc3339(self.clock.now())
        record.error = record.progress = None
        self._succeeded.append((record, done))

    def _store_successes(self) -> list[Callable[[], None]]:
        """Store what has succeeded since the last time in one write, then let dependents go.
        Gives what may be tidied up now."""
        if not self._succeeded:
            return []
        succeeded, self._succeeded = self._succeeded, []
        for record, _ in succeeded:
            failpoints.reached(failpoints.BEFORE_OUTCOME, record.step.operation.kind)
        over = [record for record, _ in succeeded]
        over += [spared for record in over for spared in self._spared_by(record)]
        self.records.write(
            *(done.store for _, done in succeeded),
            self.records.put_operations(self.change.id, over),
            *(
                self._event(record.step.operation, f"done in {self._seconds(record):.1f} s")
                for record, _ in succeeded
            ),
        )
        for record, _ in succeeded:
            failpoints.reached(failpoints.AFTER_OUTCOME, record.step.operation.kind)
        for record, _ in succeeded:
            for dependent in self._dependents.get(record.step.id, []):
                self._count_down(dependent)
        self.on_progress()
        return [done.afterwards for _, done in succeeded if done.afterwards]

    def _spared_by(self, succeeded: OperationRecord) -> list[OperationRecord]:
        """Steps that were only for the case that this one fails."""
        spared = []
        for dependent in self._dependents.get(succeeded.step.id, []):
            record = self._by_id[dependent]
            if record.step.only_if_failed == succeeded.step.id:
                self._set(record, OperationState.SKIPPED)
                record.ended = succeeded.ended
                spared.append(record)
        return spared

    def _count_down(self, step_id: int) -> None:
        """One more of the steps before it is over; it goes once none is left."""
        self._missing[step_id] -= 1
        pending = self._by_id[step_id].state is OperationState.PENDING
        if self._missing[step_id] == 0 and pending:
            self._enqueue(step_id)

    def _seconds(self, record: OperationRecord) -> float:
        """Since its first call of this run, waiting included."""
        now = self.clock.monotonic()
        return now - self._begun.get(record.step.id, now)

    def _event(self, operation: Operation, what: str) -> Batch:
        return self.records.event(
            "operation",
            f"{operation}: {what}",
            change=self.change.id,
            composition=visible_name(self.change.composition),
            site=operation.site,
            job_name=operation.job_name,
        )

    def _fail(self, step_id: int, error: BaseException) -> None:
        record = self._by_id[step_id]
        record.error = str(error)
        if isinstance(error, TransientError) and self._halted.is_set():
            return
        if isinstance(error, TransientError) and self._cancel.is_set():
            self._end(record, OperationState.CANCELLED)
        elif isinstance(error, TransientError) and self._may_retry(step_id, error):
            if isinstance(error, UnreachableError):
                self._mark_blocked(step_id)
            else:
                self._unblock(step_id)
                record.error = str(error)
                self._note_retry(record)
            self._retry(step_id)
        else:
            if isinstance(error, SpeckError):
                self.failure = self.failure or at_site(error, record.step.operation.site)
            else:
                what = record.step.operation
                record.error = f"cannot carry out {what}: {error!r} (a fault in speck)"
            self._end(record, OperationState.FAILED)

    def _may_retry(self, step_id: int, error: TransientError) -> bool:
        """Silence is waited out; a site that answers has `retry_for_s` to do better."""
        if isinstance(error, UnreachableError):
            self._failing.pop(step_id, None)
            return True
        now = self.clock.monotonic()
        first, last = self._failing.get(step_id, (now, now))
        if now - last > self.bounds.retry_for_s:  # it went well in between
            first = now
            self._tries.pop(step_id, None)
        self._failing[step_id] = (first, now)
        return now - first < self.bounds.retry_for_s

    def _note_retry(self, record: OperationRecord) -> None:
        """Tell of the first only: how many there were is in the operation's `attempts`."""
        if self._tries[record.step.id] == 0:
            what = f"tried again: {record.error}"
            self.records.write(
                self.records.put_operations(self.change.id, [record]),
                self._event(record.step.operation, what),
            )

    def _retry(self, step_id: int) -> None:
        pause = self.bounds.retry_first_s * 2.0 ** min(self._tries[step_id], 10)
        self._tries[step_id] += 1
        until = self.clock.monotonic() + min(pause, self.bounds.retry_most_s)
        heapq.heappush(self._timers, (until, next(self._tick), step_id))

    def _end(self, record: OperationRecord, state: OperationState) -> None:
        """End a step without success; what depends on it is skipped."""
        self._set(record, state)
        record.ended = rfc3339(self.clock.now())
        skipped = self._skip_dependents(record) if state is OperationState.FAILED else []
        self.records.write(
            self.records.put_operations(self.change.id, [record, *skipped]),
            self._event(record.step.operation, f"{state}: {record.error}"),
            *(self._event(r.step.operation, f"skipped: {r.error}") for r in skipped),
        )
        self.on_progress()

    def _skip_dependents(self, failed: OperationRecord) -> list[OperationRecord]:
        """Skip what needs a success; what only waits for the end of steps counts them down."""
        skipped: list[OperationRecord] = []
        over = [failed.step.id]
        while over:
            step_id = over.pop()
            for dependent in self._dependents.get(step_id, []):
                record = self._by_id[dependent]
                if step_id in record.step.whatever:
                    self._count_down(dependent)
                elif record.state is OperationState.PENDING:
                    self._set(record, OperationState.SKIPPED)
                    record.error = f"step {failed.step.id} failed: {failed.error}"
                    skipped.append(record)
                    over.append(dependent)
        return skipped

    def _mark_blocked(self, step_id: int) -> None:
        record = self._by_id[step_id]
        if record.state is not OperationState.BLOCKED:
            self._set(record, OperationState.BLOCKED)
            self.records.write(
                self.records.put_operations(self.change.id, [record]),
                self._event(record.step.operation, f"blocked: {record.error}"),
            )

    def _note_blocked(self) -> None:
        """The change is `blocked` while nothing but unreachable sites keeps it from its end."""
        stuck = self._states[OperationState.BLOCKED] and not self._states[OperationState.RUNNING]
        state = ChangeState.BLOCKED if stuck else ChangeState.RUNNING
        if state is not self.change.state:
            self.change.state = state
            self.records.write(self.records.put_change(self.change))
            self.on_progress()

    def _drop_pending(self) -> None:
        """Give up what has not begun, awaits another try, or may be left at any time."""
        given_up = {step_id for _, _, step_id in self._timers}
        self._timers.clear()
        for site, ready in self._ready.items():
            given_up |= {task.step_id for task in ready if task.finish is None}
            self._ready[site] = deque(task for task in ready if task.finish is not None)
        for step_id, wait in list(self._waits.items()):
            blocked = self._by_id[step_id].state is OperationState.BLOCKED
            if blocked or wait.waiting.may_be_left or self._halted.is_set():
                del self._waits[step_id]
                given_up.add(step_id)
        if self._halted.is_set():
            return
        dropped = [
            record
            for record in self._by_id.values()
            if record.state is OperationState.PENDING
            or (record.step.id in given_up and not record.state.over)
        ]
        for record in dropped:
            self._set(record, OperationState.CANCELLED)
            record.ended = rfc3339(self.clock.now())
        if dropped:
            self.records.write(self.records.put_operations(self.change.id, dropped))

    def _finish(self) -> ChangeState:
        if any(not record.state.over for record in self._by_id.values()):
            return self.change.state  # halted
        if self._states[OperationState.FAILED]:
            self.change.state = ChangeState.FAILED
            error = next(r.error for r in self._by_id.values() if r.state is OperationState.FAILED)
            self.change.error = "; ".join([str(error), *self._came_back()])
        elif self._states[OperationState.CANCELLED]:
            self.change.state = ChangeState.CANCELLED
        else:
            self.change.state = ChangeState.DONE
        self.change.ended = rfc3339(self.clock.now())
        return self.change.state

    def _came_back(self) -> list[str]:
        done = (r.step.operation for r in self._by_id.values() if r.state is OperationState.DONE)
        return [
            f"{back.job_name} came back as attempt {back.attempt} on {back.site}"
            for back in done
            if isinstance(back, Return)
        ]


def _overdue(waiting: Waiting) -> str:
    try:
        return waiting.overdue()
    except SpeckError as error:
        return str(error)


_LAUNCHED_AT_ONCE = 4
"""At each site, before what came back is looked at."""

_PAUSE_LOOKS = 4
"""How many times as long as a look the pause after it is at least: an engine that is busy, or far
away, is asked less often."""
