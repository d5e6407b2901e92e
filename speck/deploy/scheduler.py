"""Threads, and what they wait for: injected, so that a test can decide which of them runs next.

All of `speck.deploy` starts threads and waits by a `Scheduler` and the `Clock` only. So under the
scheduler of the tests (`tests/turns.py`) one thread runs at a time, and a seed gives the same
changes in the same order again, whatever else the machine does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

from speck.clock import Event


class Inbox(Protocol):
    """A queue from many threads to one; `queue.SimpleQueue` is one."""

    def put(self, item: Any) -> None:
        """Add an item; never blocks."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest item; waits for one if `block`, for at most `timeout` seconds. Raises
        `queue.Empty`."""


class Scheduler(Protocol):
    """What starts threads, and what they share."""

    def start(self, work: Callable[[], None], name: str) -> None:
        """Run `work` in a thread of its own, which does not keep the process alive."""

    def pool(self, workers: int, name: str) -> Executor:
        """At most so many threads, which carry out what is submitted."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock; the thread that holds it may take it again."""

    def semaphore(self, places: int) -> AbstractContextManager[Any]:
        """Held by at most so many threads at a time."""

    def event(self) -> Event:
        """An event that is not set."""

    def inbox(self) -> Inbox:
        """An empty inbox."""


class ThreadScheduler:
    """The threads of the operating system."""

    def start(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    def pool(self, workers: int, name: str) -> Executor:
        return ThreadPoolExecutor(workers, thread_name_prefix=name)

    def lock(self) -> AbstractContextManager[Any]:
        return threading.RLock()

    def semaphore(self, places: int) -> AbstractContextManager[Any]:
        return threading.BoundedSemaphore(places)

    def event(self) -> Event:
        return threading.Event()

    def inbox(self) -> Inbox:
        return queue.SimpleQueue()


THREADS = ThreadScheduler()
