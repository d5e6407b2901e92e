"""Decides when each poll of an engine or a broker begins: those of the watch, of the sampler and of
requests.

A poll that somebody waits for begins at once. The others take turns. At most `MANY` of them go on
at a time, or `FEW` while the process is busy otherwise (see `speck.sites.concurrency`). A site that
answers slowly, or not at all, holds nobody up: a poll that takes longer than `PATIENCE_S` does not
count any more, and one of a site that did not answer last time does not count among the few.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from speck.clock import Clock
from speck.errors import TransientError
from speck.sites.concurrency import MANY, PERIOD_S, AdaptiveConcurrency

PATIENCE_S = 1.0
"""How long a poll takes a turn, and how long a caller waits for one."""
_MAX_THREADS = 1024
"""The most threads: a site that does not answer occupies one until the time limit."""

Subject = tuple[str, str]
"""What is polled for, and of which site."""


@dataclass(eq=False, slots=True)
class Turn:
    """A poll that waits for its turn, which comes at `not_before` (monotonic) at the earliest.
    `run` makes the poll, unless it is not needed any more, and returns whether there was an answer;
    it must not raise."""

    subject: Subject
    run: Callable[[], bool]
    not_before: float = -math.inf
    begun: bool = False


@dataclass(eq=False, slots=True)
class _UnderWay:
    """A poll since `begun`; whether it `counts` among those that go on in their turns, and among
    those of sites that answer, too."""

    begun: float
    counts: bool = True
    answers: bool = True


class PollScheduler:
    """Thread-safe. Turns that are queued together begin in their order, and alternate with those of
    other callers."""

    def __init__(
        self,
        clock: Clock,
        apart: Callable[[], bool] = lambda: False,
        at_once: Callable[[], int] | None = None,
    ):
        """`apart`: polls are made in other processes, and do not delay the threads of this one;
        `at_once` returns how many polls of sites that answer may go on."""
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queues: deque[deque[Turn]] = deque()
        self._later: list[Turn] = []
        self._recent: deque[_UnderWay] = deque()
        self._counted = 0
        self._answering = 0
        self._silent: set[Subject] = set()
        self._cpu_s = 0.0
        adaptive = AdaptiveConcurrency(lambda: self._cpu_s)
        self._at_once = at_once or (lambda: MANY if apart() else adaptive.at_once())
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="poll")
        self._timer: threading.Thread | None = None
        self._closed = False

    def begin(
        self, subject: Subject, run: Callable[[], bool], not_before: float = -math.inf
    ) -> None:
        """Make a poll at once, or at `not_before` (monotonic), which takes no place of those that
        wait for their turns: who asks for it must not be able to hold these up. Raises
        TransientError once it is closed."""
        turn = Turn(subject, run, not_before)
        with self._changed:
            if self._closed or not_before <= self._clock.monotonic():
                self._submit(turn, self._begin_uncounted())
                return
            self._later.append(turn)
            self._start_timer()
            self._changed.notify_all()

    @property
    def later(self) -> int:
        """How many polls of `begin` are not due yet."""
        return len(self._later)

    def queue(self, turns: Iterable[Turn]) -> None:
        """Have polls made in their turns."""
        queue = deque(turns)
        if not queue:
            return
        with self._lock:
            self._queues.append(queue)
            self._start_timer()
            self._start_due()
            self._changed.notify_all()

    def withdraw(self, turns: Iterable[Turn]) -> int:
        """Do without the polls that have not begun; returns how many these are."""
        waiting = {turn for turn in turns if not turn.begun}
        with self._lock:
            left = {turn for turn in waiting if not turn.begun}
            if left:
                kept = (deque(t for t in queue if t not in left) for queue in self._queues)
                self._queues = deque(queue for queue in kept if queue)
            return len(left)

    def await_begun(
        self, turns: Iterable[Turn], until: float, gives_up: Callable[[], bool]
    ) -> None:
        """Wait until all have begun, at most `until` (monotonic), or until the caller gives up."""
        last = list(turns)[-1:]  # those that are queued together begin in their order
        with self._changed:
            while not (self._closed or gives_up() or all(turn.begun for turn in last)):
                left_s = until - self._clock.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(min(left_s, PERIOD_S))

    @property
    def silent(self) -> frozenset[Subject]:
        """What did not answer the last poll."""
        with self._lock:
            return frozenset(self._silent)

    def keep_only(self, sites: Container[str]) -> None:
        """Forget which of the other sites did not answer."""
        with self._lock:
            self._silent = {subject for subject in self._silent if subject[1] in sites}

    def close(self) -> None:
        """Begin no further poll."""
        with self._changed:
            self._closed = True
            self._queues.clear()
            self._later.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- turns; all with the lock held --------------------------------------------------------

    def _start_timer(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = threading.Thread(target=self._wake, name="poll-turns", daemon=True)
            self._timer.start()

    def _begin_uncounted(self) -> _UnderWay:
        return _UnderWay(self._clock.monotonic(), counts=False, answers=False)

    def _start_due(self) -> None:
        """Begin what may begin now, one of each queue after the other."""
        now = self._clock.monotonic()
        for turn in [turn for turn in self._later if turn.not_before <= now]:
            self._later.remove(turn)
            self._submit(turn, self._begin_uncounted())
        resting = 0
        while resting < len(self._queues) and self._has_room(now):
            queue = self._queues.popleft()
            if queue and queue[0].not_before <= now:
                self._start(queue.popleft(), now)
                resting = 0
            else:
                resting += 1
            if queue:
                self._queues.append(queue)

    def _has_room(self, now: float) -> bool:
        while self._recent and now - self._recent[0].begun >= PATIENCE_S:
            self._discount(self._recent.popleft())
        while self._recent and not self._recent[0].counts:
            self._recent.popleft()
        return self._counted < MANY and self._answering < self._at_once()

    def _start(self, turn: Turn, now: float) -> None:
        poll = _UnderWay(now, answers=turn.subject not in self._silent)
        self._submit(turn, poll)
        self._recent.append(poll)
        self._counted += 1
        self._answering += poll.answers

    def _submit(self, turn: Turn, poll: _UnderWay) -> None:
        try:
            self._pool.submit(self._run, turn, poll)
        except RuntimeError as error:
            raise TransientError("cannot poll sites: the service is stopping") from error
        turn.begun = True

    def _discount(self, poll: _UnderWay) -> None:
        if poll.counts:
            poll.counts = False
            self._counted -= 1
            self._answering -= poll.answers

    # -- threads ------------------------------------------------------------------------------

    def _run(self, turn: Turn, poll: _UnderWay) -> None:
        has_answered, cpu_s = False, time.thread_time()
        try:
            has_answered = turn.run()
        finally:
            with self._changed:
                self._cpu_s += time.thread_time() - cpu_s
                if has_answered:
                    self._silent.discard(turn.subject)
                else:
                    self._silent.add(turn.subject)
                self._discount(poll)
                if self._queues and not self._closed:
                    self._start_due()
                    if not self._queues:
                        self._changed.notify_all()

    def _wake(self) -> None:
        """Begin what time alone lets begin: turns that become due, and those that had to wait for
        slow polls or while the process was busy."""
        with self._changed:
            while not self._closed:
                self._start_due()
                now = self._clock.monotonic()
                if not (self._queues or self._later):
                    self._changed.wait()
                    continue
                next_turns = [*(queue[0] for queue in self._queues), *self._later]
                heads = (turn.not_before - now for turn in next_turns)
                due_s = min((head for head in heads if head > 0), default=PERIOD_S)
                self._changed.wait(min(max(due_s, PERIOD_S / 10), PERIOD_S))
