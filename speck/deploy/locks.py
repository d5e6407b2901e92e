"""A lock for each name."""

from __future__ import annotations

import threading


class NamedLocks:
    """Locks by name, made when first asked for; whoever asks at once gets the same one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}

    def __getitem__(self, name: str) -> threading.RLock:
        with self._guard:
            return self._locks.setdefault(name, threading.RLock())
