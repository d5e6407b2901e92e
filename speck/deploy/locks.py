"""A lock for each name, and those of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from speck.deploy.scheduler import THREADS, Scheduler


class NamedLocks:
    """Locks by name, created at first use; concurrent callers get the same lock."""

    def __init__(self, scheduler: Scheduler = THREADS) -> None:
        self._scheduler = scheduler
        self._guard = scheduler.lock()
        self._locks: dict[str, AbstractContextManager[Any]] = {}

    def __getitem__(self, name: str) -> AbstractContextManager[Any]:
        with self._guard:
            return self._locks.setdefault(name, self._scheduler.lock())

    @contextmanager
    def all_of(self, names: Iterable[str]) -> Iterator[None]:
        """Hold the locks of several names, taken in their order, so that no two callers wait for
        each other."""
        with ExitStack() as held:
            for name in sorted(set(names)):
                held.enter_context(self[name])
            yield


class SessionLocks:
    """Two locks for each session, by client id. Who needs both takes `reserving` first; whoever
    holds one waits for no change, and for none to begin."""

    def __init__(self, scheduler: Scheduler = THREADS) -> None:
        self.reserving = NamedLocks(scheduler)
        """Held while a session is made, renewed or ended at its broker, and while it is stored that
        its reader begins: that broker may hang, but holds up nobody else."""
        self.writing = NamedLocks(scheduler)
        """Held while its record is read and written: several producers may leave its link at the
        same time. Each session has its own, so that the writes of many share a sync."""
