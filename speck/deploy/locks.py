"""A lock for each name."""

from __future__ import annotations

from contextlib import AbstractContextManager
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
