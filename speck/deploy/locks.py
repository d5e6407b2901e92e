"""A lock for each name."""

from __future__ import annotations

import threading


class NamedLocks:
    """Locks by name, created at first use; concurrent callers get the same lock."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}

    def __getitem__(self, name: str) -> threading.RLock:
        with self._guard:
            return self._locks.setdefault(name, threading.RLock())
