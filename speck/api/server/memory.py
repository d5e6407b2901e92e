"""Gives memory back to the system that the process no longer uses.

glibc keeps what is freed. By default it has eight arenas for each core, one for every few threads:
after half a minute of exports by eight clients they held 60 MB that nothing used, and 100 MB with
the pools of pyarrow (`speck.metrics.dataset`). And once a buffer of some megabytes was freed,
others of that size are cut from the arenas, among objects that stay: after documents at the limits
of what is taken a service of 100 MB had 70 MB of holes in them.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from speck.clock import Clock
from speck.periodic import PeriodicTask

ARENAS = 2
"""Heaps that the threads share: one thread at a time holds the interpreter anyway."""

LARGE_BYTES = 256 * 1024
"""Buffers from this size on have pages of their own, which are given back with them."""

GROWN_BYTES = 8 << 20
LOOK_EVERY_S = 2.0

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_STATM = Path("/proc/self/statm")


def limit_idle_memory() -> None:
    """Set up malloc for this process and those that it forks."""
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


class IdleMemory:
    """Returns the holes in the heaps to the system a moment after the process has grown; that takes
    some milliseconds. Otherwise it only looks at its size."""

    def __init__(self, clock: Clock):
        self._kept = read_resident_bytes()
        self._last = self._kept
        self._task = PeriodicTask("memory", self.look, LOOK_EVERY_S, clock, waits_first=True)

    def start(self) -> None:
        """Begin to look."""
        self._task.start()

    def stop(self) -> None:
        """End it."""
        self._task.stop()

    def look(self) -> None:
        """Give memory back if there is more than after the last time, and it does not grow now."""
        now = read_resident_bytes()
        grows = now > self._last + GROWN_BYTES
        self._last = now
        if now > self._kept + GROWN_BYTES and not grows:
            trim()
            self._kept = self._last = read_resident_bytes()
        self._kept = min(self._kept, now)


def trim() -> None:
    """Return the holes in the heaps to the system."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def read_resident_bytes() -> int:
    """The memory that this process holds; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
