"""Carries out a plan: as much at the same time as its order and each site's bound allow.

The executor holds no business rule. It starts steps whose predecessors are done, retries what
may work later, stores each outcome before a dependent starts, and leaves the rest of the graph
alone when one step fails. A step whose site does not answer is `blocked`: it goes on when the
site answers again, and the other branches do not wait for it.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from speck.change import Change, ChangeState, OperationRecord, OperationState
from speck.clock import Clock, rfc3339
from speck.connections import Connections
from speck.errors import PermanentError, SpeckError, TransientError, UnreachableError, at_site
from speck.observed import EngineView
from speck.operations import Done, Operations, Outcome, Waiting
from speck.records import Records


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much at once, and how patient. Times in seconds."""

    workers: int = 48
    per_site: int = 16
    poll_s: float = 0.05
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
    view: EngineView | None
    error: SpeckError | None


@dataclass(slots=True)
class _Wait:
    waiting: Waiting
    until: float


@dataclass(slots=True)
class Execution:
    """One run of one change. `run` blocks until the change is over."""

    change: Change
    operations: Operations
    connections: Connections
    records: Records
    clock: Clock
    bounds: Bounds = field(default_factory=Bounds)
    on_progress: Callable[[], None] = lambda: None
    _cancel: threading.Event = field(default_factory=threading.Event)
    _inbox: queue.SimpleQueue[_Result | _Look | None] = field(default_factory=queue.SimpleQueue)
    _by_id: dict[int, OperationRecord] = field(default_factory=dict)
    _missing: dict[int, int] = field(default_factory=dict)
    _dependents: dict[int, list[int]] = field(default_factory=dict)
    _ready: dict[str, deque[int]] = field(default_factory=dict)
    _busy: Counter[str] = field(default_factory=Counter)
    _active: int = 0
    _waits: dict[int, _Wait] = field(default_factory=dict)
    _looking: set[str] = field(default_factory=set)
    _looked: dict[str, float] = field(default_factory=dict)
    _timers: list[tuple[float, int, int]] = field(default_factory=list)
    _tick: itertools.count[int] = field(default_factory=itertools.count)
    _first_failure: dict[int, float] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)
    failure: SpeckError | None = None
    """The first error that stopped a step for good; decides the HTTP status of a job's call."""

    def cancel(self) -> None:
        """Start no further operation; `run` ends once those under way have ended."""
        self._cancel.set()
        self._inbox.put(None)

    def run(self) -> ChangeState:
        """Carry out the whole plan and return how the change ended."""
        for record in self.change.operations:
            step = record.step
            self._by_id[step.id] = record
            self._missing[step.id] = len(step.after)
            for before in step.after:
                self._dependents.setdefault(before, []).append(step.id)
            if not step.after:
                self._enqueue(step.id)
        workers = min(self.bounds.workers, max(4, len(self.change.operations)))
        with ThreadPoolExecutor(workers, thread_name_prefix="operation") as pool:
            while self._step(pool):
                pass
        return self._finish()

    # -- the loop -------------------------------------------------------------------------

    def _step(self, pool: ThreadPoolExecutor) -> bool:
        now = self.clock.monotonic()
        if self._cancel.is_set():
            self._drop_pending()
        self._wake(now)
        self._launch(pool)
        self._look(pool, now)
        if not (self._active or self._waits or self._timers or any(self._ready.values())):
            return False
        self._note_blocked()
        try:
            message = self._inbox.get(timeout=self._pause(now))
        except queue.Empty:
            return True
        while message is not None:
            self._receive(pool, message)
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                break
        return True

    def _pause(self, now: float) -> float:
        pauses = [1.0]
        if self._timers:
            pauses.append(self._timers[0][0] - now)
        if self._waits:
            pauses.append(self.bounds.poll_s)
        return max(0.001, min(pauses))

    def _enqueue(self, step_id: int) -> None:
        site = self._by_id[step_id].step.operation.site
        self._ready.setdefault(site, deque()).append(step_id)

    def _wake(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            self._enqueue(heapq.heappop(self._timers)[2])
        for step_id, wait in list(self._waits.items()):
            if now > wait.until:
                del self._waits[step_id]
                self._fail(step_id, PermanentError(_overdue(wait.waiting)))

    def _launch(self, pool: ThreadPoolExecutor) -> None:
        for site, ready in self._ready.items():
            while ready and self._busy[site] < self.bounds.per_site:
                step_id = ready.popleft()
                self._begin(step_id)
                operation = self._by_id[step_id].step.operation
                self._submit(pool, step_id, partial(self.operations.carry_out, operation))

    def _begin(self, step_id: int) -> None:
        record = self._by_id[step_id]
        record.attempts += 1
        if record.started is None:
            record.started = rfc3339(self.clock.now())
        if record.state is not OperationState.BLOCKED:
            record.state = OperationState.RUNNING
        self.records.write(self.records.put_operations(self.change.id, [record]))
        self.on_progress()

    def _submit(
        self, pool: ThreadPoolExecutor, step_id: int, action: Callable[[], Outcome]
    ) -> None:
        self._busy[self._by_id[step_id].step.operation.site] += 1
        self._active += 1

        def work() -> None:
            try:
                self._inbox.put(_Result(step_id, action(), None))
            except BaseException as error:  # the loop decides by type
                self._inbox.put(_Result(step_id, None, error))

        pool.submit(work)

    def _look(self, pool: ThreadPoolExecutor, now: float) -> None:
        """Ask each engine that something waits for, one question at a time."""
        for site in {wait.waiting.site for wait in self._waits.values()} - self._looking:
            if now - self._looked.get(site, 0.0) < self.bounds.poll_s:
                continue
            self._looking.add(site)

            def work(site: str = site) -> None:
                try:
                    self._inbox.put(_Look(site, self.connections.engine(site).view(), None))
                except SpeckError as error:
                    self._inbox.put(_Look(site, None, error))

            pool.submit(work)

    # -- what comes back ------------------------------------------------------------------

    def _receive(self, pool: ThreadPoolExecutor, message: _Result | _Look) -> None:
        if isinstance(message, _Look):
            self._receive_look(pool, message)
            return
        self._active -= 1
        self._busy[self._by_id[message.step_id].step.operation.site] -= 1
        if message.error is not None:
            self._fail(message.step_id, message.error)
        elif isinstance(message.outcome, Waiting):
            limit = self.clock.monotonic() + message.outcome.limit_s
            self._waits[message.step_id] = _Wait(message.outcome, limit)
        elif message.outcome is not None:
            self._succeed(message.step_id, message.outcome)

    def _receive_look(self, pool: ThreadPoolExecutor, look: _Look) -> None:
        self._looking.discard(look.site)
        self._looked[look.site] = self.clock.monotonic()
        waiting = [(i, w) for i, w in self._waits.items() if w.waiting.site == look.site]
        for step_id, wait in waiting:
            if look.view is None:
                self._by_id[step_id].error = str(look.error)
                self._mark_blocked(step_id)
            elif wait.waiting.ready(look.view):
                del self._waits[step_id]
                self._submit(pool, step_id, wait.waiting.finish)
            elif self._by_id[step_id].state is OperationState.BLOCKED:
                self._by_id[step_id].state = OperationState.RUNNING

    def _succeed(self, step_id: int, done: Done) -> None:
        record = self._by_id[step_id]
        record.state = OperationState.DONE
        record.ended = rfc3339(self.clock.now())
        record.error = None
        operation = record.step.operation
        self.records.write(
            done.store,
            self.records.put_operations(self.change.id, [record]),
            self.records.event(
                "operation",
                f"{operation}: done",
                change=self.change.id,
                site=operation.site,
                job_name=operation.job_name,
            ),
        )
        for dependent in self._dependents.get(step_id, []):
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0:
                self._enqueue(dependent)
        self.on_progress()

    def _fail(self, step_id: int, error: BaseException) -> None:
        record = self._by_id[step_id]
        record.error = str(error)
        now = self.clock.monotonic()
        since = self._first_failure.setdefault(step_id, now)
        unreachable = isinstance(error, UnreachableError)
        patient = isinstance(error, TransientError) and now - since < self.bounds.retry_for_s
        if (unreachable or patient) and not self._cancel.is_set():
            if unreachable:
                self._mark_blocked(step_id)
            pause = self.bounds.retry_first_s * 2.0 ** min(self._tries[step_id], 10)
            self._tries[step_id] += 1
            until = now + min(pause, self.bounds.retry_most_s)
            heapq.heappush(self._timers, (until, next(self._tick), step_id))
            return
        if isinstance(error, TransientError) and self._cancel.is_set():
            record.state = OperationState.CANCELLED
            self._record_failure(record, [])
            return
        if isinstance(error, SpeckError):
            self.failure = self.failure or at_site(error, record.step.operation.site)
        else:
            record.error = f"cannot carry out {record.step.operation}: {error!r} (a fault in speck)"
        record.state = OperationState.FAILED
        record.ended = rfc3339(self.clock.now())
        skipped = self._skip_dependents(step_id)
        self._record_failure(record, skipped)

    def _record_failure(self, record: OperationRecord, skipped: list[OperationRecord]) -> None:
        operation = record.step.operation
        self.records.write(
            self.records.put_operations(self.change.id, [record, *skipped]),
            self.records.event(
                "operation",
                f"{operation}: {record.error}",
                change=self.change.id,
                site=operation.site,
                job_name=operation.job_name,
            ),
        )
        self.on_progress()

    def _skip_dependents(self, step_id: int) -> list[OperationRecord]:
        skipped: list[OperationRecord] = []
        todo = list(self._dependents.get(step_id, []))
        while todo:
            record = self._by_id[todo.pop()]
            if record.state is OperationState.PENDING:
                record.state = OperationState.SKIPPED
                record.error = f"step {step_id} failed"
                skipped.append(record)
                todo.extend(self._dependents.get(record.step.id, []))
        return skipped

    def _mark_blocked(self, step_id: int) -> None:
        record = self._by_id[step_id]
        if record.state is not OperationState.BLOCKED:
            record.state = OperationState.BLOCKED
            self.records.write(self.records.put_operations(self.change.id, [record]))

    def _note_blocked(self) -> None:
        """The change is `blocked` while nothing but unreachable sites keeps it from its end."""
        states = {record.state for record in self._by_id.values()}
        stuck = OperationState.BLOCKED in states and OperationState.RUNNING not in states
        state = ChangeState.BLOCKED if stuck else ChangeState.RUNNING
        if state is not self.change.state:
            self.change.state = state
            self.records.write(self.records.put_change(self.change))
            self.on_progress()

    def _drop_pending(self) -> None:
        self._ready.clear()
        self._timers.clear()
        for step_id in [i for i in self._waits if self._by_id[i].state is OperationState.BLOCKED]:
            del self._waits[step_id]
        dropped = [
            r
            for r in self._by_id.values()
            if r.state in (OperationState.PENDING, OperationState.BLOCKED)
            and r.step.id not in self._waits
        ]
        for record in dropped:
            record.state = OperationState.CANCELLED
        if dropped:
            self.records.write(self.records.put_operations(self.change.id, dropped))

    def _finish(self) -> ChangeState:
        states = {record.state for record in self._by_id.values()}
        if OperationState.FAILED in states:
            self.change.state = ChangeState.FAILED
            self.change.error = next(
                r.error for r in self._by_id.values() if r.state is OperationState.FAILED
            )
        elif OperationState.CANCELLED in states:
            self.change.state = ChangeState.CANCELLED
        else:
            self.change.state = ChangeState.DONE
        self.change.ended = rfc3339(self.clock.now())
        return self.change.state


def _overdue(waiting: Waiting) -> str:
    try:
        return waiting.overdue()
    except SpeckError as error:
        return str(error)
