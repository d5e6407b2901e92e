"""Threads that take turns: a scheduler, and the clock that goes with it, for reproducible tests.

The threads are greenlets: one runs at a time. At every lock, wait and call of an engine or a broker
it may be another one's turn: a seed decides whose. Time passes with turns only, by `TURN_S` each,
and jumps to the next deadline when all wait; nobody sleeps. So a test that starts its threads here,
and lets them wait here, does the same again for the same seed, whatever else the machine does.
"""

from __future__ import annotations

import queue
import random
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from typing import Any

from greenlet import getcurrent, greenlet

from speck.clock import Event
from tests.waiting import wait_for

TURN_S = 0.0002
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Death(BaseException):
    """Ends each thread of a service that is dead."""


def _always() -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Thread:
    """It is its turn when `condition` is true or `until` is over."""

    run: greenlet
    condition: Callable[[], bool] = _always
    until: float = inf


class Turns:
    """A `speck.deploy.scheduler.Scheduler` and a `speck.clock.Clock`, used by the thread that
    creates it, which has the first turn, and by those that were started by `start` or a `pool`."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._now = 0.0
        self._first = getcurrent()
        self._current = _Thread(self._first)
        self._threads = [self._current]

    # -- turns ----------------------------------------------------------------------------

    def pass_on(self) -> None:
        """It may be another thread's turn."""
        self.wait_until(_always)

    def wait_some(self) -> None:
        """Let others have no turns, some, or many."""
        self.wait(TURN_S * self._dice.choice((0, 1, 4, 16, 64)))

    def wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Let others have their turns until `condition` is true, for at most so many seconds;
        whether it is."""
        own = self._current
        own.condition = condition
        own.until = inf if seconds is None else self._now + seconds
        self._choose()
        while self._current is not own:
            self._current.run.switch()
        return condition()

    def poll(self, look: Callable[[], bool], seconds: float = 240) -> None:
        """Let others have their turns until `look`, which may do anything, has been true in a turn
        of its own. Raises AssertionError after so many seconds."""
        until = self._now + seconds
        while not look():
            assert self._now < until, f"waited {seconds:g} s in vain"
            self.wait(0.001)

    def _choose(self) -> None:
        """Choose whose turn it is now."""
        self._now += TURN_S
        ready = self._find_ready()
        if not ready:
            self._now = max(self._now, min(each.until for each in self._threads))
            ready = self._find_ready()
        assert ready, "every thread waits for another one"
        self._current = self._dice.choice(ready)

    def _find_ready(self) -> list[_Thread]:
        return [each for each in self._threads if each.until <= self._now or each.condition()]

    # -- the scheduler --------------------------------------------------------------------

    def start(self, work: Callable[[], None], name: str) -> None:
        self._threads.append(_Thread(greenlet(partial(self._run, work), self._first)))

    def _run(self, work: Callable[[], None]) -> None:
        """Its end returns to the first thread, in `wait_until`, which gives the next one its
        turn."""
        own = self._current
        try:
            work()
        except Death:
            pass
        except Exception:
            traceback.print_exc()
        self._threads.remove(own)
        self._choose()

    def pool(self, workers: int, name: str) -> Executor:
        return _Pool(self, workers, name)

    def lock(self) -> AbstractContextManager[Any]:
        return _Lock(self)

    def semaphore(self, places: int) -> AbstractContextManager[Any]:
        return _Semaphore(self, places)

    def event(self) -> Event:
        return _Event(self)

    def inbox(self) -> _Inbox:
        return _Inbox(self)

    # -- the clock ------------------------------------------------------------------------

    def now(self) -> datetime:
        return _BEGIN + timedelta(seconds=self._now)

    def monotonic(self) -> float:
        return self._now

    def wait(self, seconds: float) -> None:
        self.wait_until(lambda: False, seconds)

    def wait_for(self, event: Event, seconds: float) -> bool:
        return event.wait(seconds)

    def new_id(self) -> str:
        return f"{self._dice.getrandbits(128):032x}"


class _Semaphore:
    def __init__(self, turns: Turns, places: int) -> None:
        self._turns = turns
        self._free = places

    def __enter__(self) -> None:
        self._turns.wait_until(lambda: self._free > 0)
        self._free -= 1

    def __exit__(self, *error: object) -> None:
        self._free += 1


class _Lock:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._holder: greenlet | None = None
        self._depth = 0

    def __enter__(self) -> None:
        own = getcurrent()
        if self._holder is not own:
            self._turns.wait_until(lambda: self._holder is None)
            self._holder = own
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None


class _Event:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        return self._turns.wait_until(self.is_set, timeout)


class _Inbox:
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block:
            self._turns.wait_until(lambda: bool(self._items), timeout)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class _Result(Future[Any]):
    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def result(self, timeout: float | None = None) -> Any:
        self._turns.wait_until(self.done, timeout)
        return super().result(0)


class _Pool(Executor):
    """Each call has a thread of its own, which waits while too many others run."""

    def __init__(self, turns: Turns, workers: int, name: str) -> None:
        self._turns = turns
        self._name = name
        self._places = turns.semaphore(workers)
        self._results: list[_Result] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        result = _Result(self._turns)
        self._results.append(result)

        def work() -> None:
            with self._places:
                try:
                    result.set_result(call(*args, **more))
                except BaseException as error:
                    result.set_exception(error)

        self._turns.start(work, self._name)
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self._turns.wait_until(lambda: all(each.done() for each in self._results))


class Threads:
    """In place of `Turns`: threads run as they do, and who waits looks again and again."""

    def pass_on(self) -> None:
        """Does nothing."""

    def poll(self, look: Callable[[], bool]) -> None:
        wait_for(look)
