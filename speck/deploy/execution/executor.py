"""The loop that carries out the plan of one change.

It holds no business rule. It makes the calls of released steps, stores each outcome before a
dependent starts, and lets the rest of the graph go on when one step fails. A step whose site does
not answer is `blocked`: it goes on when the site answers again, and other branches do not wait for
it.

Calls run in a thread pool. Everything else happens in the thread of `run`, which receives their
results through a queue.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from speck import failpoints
from speck.clock import Clock
from speck.deploy.execution.bounds import Bounds
from speck.deploy.execution.journal import Journal
from speck.deploy.execution.ordering import Call, ReadyCalls, StepOrder
from speck.deploy.execution.retry import Retries
from speck.deploy.execution.waiting import PollSchedule, WaitingSteps
from speck.deploy.limiter import Limiter
from speck.deploy.operations import Operations, Outcome, Waiting
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import PermanentError, SpeckError, TransientError, UnreachableError, at_site
from speck.model.change import Change, ChangeState
from speck.model.engines import EngineAt
from speck.model.observation import EngineJob
from speck.model.plan import Operation
from speck.sites.connections import Connections
from speck.store.records import Records

_IDLE_S = 1.0
"""The loop wakes up at least this often."""


@dataclass(frozen=True, slots=True)
class _Result:
    step_id: int
    outcome: Outcome | None
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Poll:
    engine: EngineAt
    jobs: Mapping[str, EngineJob] | None
    error: BaseException | None
    took_s: float


class Execution:
    """One run of one change. `run` blocks until the change is over."""

    def __init__(
        self,
        change: Change,
        operations: Operations,
        connections: Connections,
        records: Records,
        clock: Clock,
        bounds: Bounds,
        on_progress: Callable[[], None] = lambda: None,
        limiter: Limiter | None = None,
        on_done: Callable[[Operation], None] = lambda operation: None,
        scheduler: Scheduler = THREADS,
    ):
        """`limiter` limits the calls of all changes together; by default this change has its own.
        `on_done` is called with each operation that has succeeded, before it counts as done."""
        self.change = change
        self.failure: SpeckError | None = None
        """The first error that ended a step for good. It determines the HTTP status of the call
        that changed a job."""
        self._operations = operations
        self._on_done = on_done
        self._connections = connections
        self._clock = clock
        self._scheduler = scheduler
        self._bounds = bounds
        self._limiter = limiter or Limiter(bounds.per_site, scheduler)
        self._journal = Journal(change, records, clock, on_progress)
        self._order = StepOrder(record.step for record in change.operations)
        self._calls = ReadyCalls()
        self._retries = Retries(bounds)
        self._waiting = WaitingSteps()
        self._polls = PollSchedule(bounds)
        self._next_poll_at = math.inf
        self._cancelled = scheduler.event()
        self._halted = scheduler.event()
        self._inbox = scheduler.inbox()
        self._active = 0
        self._workers = self._count_workers()
        self._blocked_since: dict[int, float] = {}
        self._spared: list[int] = []

    def cancel(self) -> None:
        """Start no further operation; `run` ends once those under way have ended."""
        self._cancelled.set()
        self.wake()

    def halt(self) -> None:
        """Like `cancel`, but operations that have not ended keep their state in the store: the
        service stops, and continues the change at its next start."""
        self._halted.set()
        self.cancel()

    def wake(self) -> None:
        """Wake the loop up."""
        self._inbox.put(None)

    def run(self) -> ChangeState:
        """Carry out the whole plan and return how the change ended."""
        self._operations.begin(record.step.operation for record in self.change.operations)
        self._enqueue(self._order.release_first())
        try:
            with self._scheduler.pool(self._workers, "operation") as pool:
                while self._step(pool):
                    pass
        finally:
            self._limiter.leave(self)
        return self._journal.finish()

    def _count_workers(self) -> int:
        """Enough threads for all calls that the sites' bounds allow, and for one poll of each
        engine."""
        steps = len(self.change.operations)
        sites = len({record.step.operation.site for record in self.change.operations})
        most = min(steps, self._bounds.per_site * sites) + sites
        return max(1, min(self._bounds.workers, most))

    # -- the loop -------------------------------------------------------------------------

    def _step(self, pool: Executor) -> bool:
        now = self._clock.monotonic()
        self._release_dependents()
        if self._cancelled.is_set():
            self._give_up()
        self._wake(now)
        self._advance(pool)
        self._poll(pool, now)
        self._let_go_on(now)
        if not (self._active or self._waiting or self._retries or self._calls):
            return False
        self._journal.record_blocked()
        try:
            pause_s = self._pause_s(self._clock.monotonic())
            message: _Result | _Poll | None = self._inbox.get(timeout=pause_s)
        except queue.Empty:
            return True
        while message is not None:
            self._receive(message)
            try:
                message = self._inbox.get(block=False)
            except queue.Empty:
                break
        return True

    def _let_go_on(self, now: float) -> None:
        """Release the steps that do not wait any longer for sites which do not answer."""
        blocked = self._journal.list_blocked()
        self._blocked_since = {each: self._blocked_since.get(each, now) for each in blocked}
        for step_id, since in self._blocked_since.items():
            self._enqueue(self._order.release_impatient(step_id, now - since))

    def _pause_s(self, now: float) -> float:
        pauses = [_IDLE_S]
        if (next_at := self._retries.next_at()) is not None:
            pauses.append(next_at - now)
        if self._waiting.has_any_at(None):
            pauses.append(self._bounds.poll_s)
        return max(0.001, min(*pauses, self._next_poll_at - now))

    def _give_up(self) -> None:
        """Give up what has not begun, waits for another try, or may be interrupted at any time."""
        step_ids = self._retries.give_up() | self._calls.drop_operations()
        step_ids |= self._waiting.give_up(everything=self._halted.is_set())
        if not self._halted.is_set():
            self._journal.cancel(step_ids | self._order.give_up())

    def _enqueue(self, step_ids: list[int]) -> None:
        for step_id in step_ids:
            self._calls.add(self._journal.operation(step_id).site, Call(step_id))

    def _wake(self, now: float) -> None:
        self._enqueue(self._retries.take_due(now))
        for step_id, waiting in self._waiting.take_overdue(now):
            self._fail(step_id, PermanentError(_explain_overdue(waiting)))
        for step_id, waiting in self._waiting.take_ready(None, {}):
            self._end_wait(step_id, waiting)

    def _release_dependents(self) -> None:
        """Queue the calls of the steps that new successes release. `_advance` stores the successes
        before it makes any call."""
        for step_id in self._journal.list_succeeded():
            self._spared += self._order.skip_spared(step_id)
            for released in reversed(self._order.release_after_success(step_id)):
                self._calls.add_first(self._journal.operation(released).site, Call(released))

    def _advance(self, pool: Executor) -> None:
        """Store, in one write, all new successes and that the calls that are ready begin; then make
        these calls. Each write is synced, and the calls wait for it: with one for the successes and
        one for the calls, removing a hundred jobs took as long for the disk as for the engines."""
        free = self._workers - self._active
        calls = self._calls.take(lambda site: self._limiter.acquire(site, self), free)
        begun = [call.step_id for call in calls if call.finish is None]
        spared, self._spared = self._spared, []
        with self._operations.storing(self._journal.outcomes):
            outcomes = self._journal.advance(spared, begun)
        for call in calls:
            self._submit(pool, call)
        for outcome in outcomes:
            if outcome.afterwards:
                pool.submit(outcome.afterwards)

    def _submit(self, pool: Executor, call: Call) -> None:
        operation = self._journal.operation(call.step_id)
        action = call.finish or partial(self._operations.carry_out, operation)
        self._active += 1

        def work() -> None:
            try:
                with failpoints.carrying_out(operation.kind):
                    outcome = action()
                    if call.finish is None:
                        failpoints.hit(failpoints.AFTER_ANSWER)
                self._inbox.put(_Result(call.step_id, outcome, None))
            except BaseException as error:  # the loop decides by type
                self._inbox.put(_Result(call.step_id, None, error))

        pool.submit(work)

    def _poll(self, pool: Executor, now: float) -> None:
        """Poll each engine that a step waits for, one poll at a time."""
        engines = self._waiting.engines
        busy = self._active > 0
        calm = [engine for engine in engines if busy and not self._waiting.is_awaited(engine)]
        due, self._next_poll_at = self._polls.take_due(engines, calm, now)
        for engine in due:
            pool.submit(self._poll_engine, engine)

    def _poll_engine(self, engine: EngineAt) -> None:
        jobs: Mapping[str, EngineJob] | None = None
        failure: BaseException | None = None
        began = self._clock.monotonic()
        try:
            jobs = self._connections.engine_of(engine).jobs()
        except BaseException as error:  # the loop decides by type
            failure = error
        self._inbox.put(_Poll(engine, jobs, failure, self._clock.monotonic() - began))

    # -- results --------------------------------------------------------------------------

    def _receive(self, message: _Result | _Poll) -> None:
        if isinstance(message, _Poll):
            self._receive_poll(message)
            return
        step_id = message.step_id
        self._active -= 1
        self._limiter.release(self._journal.operation(step_id).site, self)
        if message.error is not None:
            self._fail(step_id, message.error)
        elif isinstance(message.outcome, Waiting):
            self._begin_wait(step_id, message.outcome)
        elif message.outcome is not None:
            self._on_done(self._journal.operation(step_id))
            self._journal.record_success(step_id, message.outcome)

    def _begin_wait(self, step_id: int, waiting: Waiting) -> None:
        now = self._clock.monotonic()
        self._retries.record_success(step_id, now)
        if waiting.engine and not self._waiting.has_any_at(waiting.engine):
            self._polls.begin(waiting.engine, now)
        self._waiting.add(step_id, waiting, now, awaited=self._order.is_awaited(step_id))
        self._journal.record_waiting(step_id, waiting.progress, waiting.trouble)

    def _receive_poll(self, poll: _Poll) -> None:
        now = self._clock.monotonic()
        ready: list[tuple[int, Waiting]] = []
        if poll.jobs is not None:
            for step_id in self._waiting.record_answer(poll.engine, now):
                self._journal.record_answer(step_id)
            ready = self._waiting.take_ready(poll.engine, poll.jobs)
            for step_id, waiting in ready:
                self._end_wait(step_id, waiting)
        elif isinstance(
            poll.error, SpeckError
        ):  # this says nothing about the job: continue to wait
            for step_id in self._waiting.record_silence(poll.engine):
                self._journal.record_silence(step_id, poll.error)
        elif poll.error is not None:
            for step_id in self._waiting.steps_at(poll.engine):
                self._waiting.remove(step_id)
                self._fail(step_id, poll.error)
        answered, ended = poll.jobs is not None, bool(ready)
        self._polls.end(poll.engine, now, took_s=poll.took_s, ended_waits=ended, answered=answered)

    def _end_wait(self, step_id: int, waiting: Waiting) -> None:
        site = self._journal.operation(step_id).site
        self._calls.add_first(site, Call(step_id, waiting.finish))

    def _fail(self, step_id: int, error: BaseException) -> None:
        if isinstance(error, TransientError) and self._halted.is_set():
            self._journal.record_error(step_id, error)
            return
        if isinstance(error, TransientError) and self._cancelled.is_set():
            self._journal.end_cancelled(step_id, error)
            return
        retry = self._retries.schedule(step_id, error, self._clock.monotonic())
        if retry is None:
            self._end_failed(step_id, error)
        elif isinstance(error, UnreachableError):
            self._journal.record_silence(step_id, error)
        else:
            self._journal.record_retry(step_id, error, retry.number)

    def _end_failed(self, step_id: int, error: BaseException) -> None:
        operation = self._journal.operation(step_id)
        why = str(error)
        if isinstance(error, SpeckError):
            self.failure = self.failure or at_site(error, operation.site)
        else:
            why = f"cannot carry out {operation}: {error!r} (a fault in speck)"
        after = self._order.end_failed(step_id)
        self._journal.end_failed(step_id, why, after.skipped)
        self._enqueue(after.ready)


def _explain_overdue(waiting: Waiting) -> str:
    try:
        return waiting.overdue()
    except SpeckError as error:
        return str(error)
