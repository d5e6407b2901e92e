"""Limits how many sites are polled at the same time: few while this process is otherwise busy.

All threads of a Python process share one core. As long as polls wait for distant sites, many
concurrent ones cost nothing. Once that core is the bottleneck, each further poll only delays the
threads of requests and changes: with a thousand nearby sites, an apply beside 32 polls takes many
times as long as alone (`make bench-scale`: a no-op of everything).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MANY = 96
"""Concurrent polls while the process is otherwise idle."""
FEW = 8
"""Concurrent polls while it is busy."""
BUSY_CORES = 0.3
"""The process counts as busy if it uses more CPU cores than this for anything but polls."""
PERIOD_S = 0.1
"""Minimum sampling interval, in seconds."""


class AdaptiveConcurrency:
    """Derives `at_once` from the CPU time that the process uses beyond `own_cpu_s`, that of the
    polls themselves. Thread-safe."""

    def __init__(
        self,
        own_cpu_s: Callable[[], float],
        cpu_s: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own_cpu_s = own_cpu_s
        self._cpu_s = cpu_s
        self._now = now
        self._lock = threading.Lock()
        self._since = now(), self._others_s()
        self._at_once = MANY

    def at_once(self) -> int:
        """How many polls may run now."""
        with self._lock:
            now = self._now()
            elapsed_s = now - self._since[0]
            if elapsed_s >= PERIOD_S:
                used_s = (others_s := self._others_s()) - self._since[1]
                self._since = now, others_s
                self._at_once = FEW if used_s > BUSY_CORES * elapsed_s else MANY
            return self._at_once

    def _others_s(self) -> float:
        return self._cpu_s() - self._own_cpu_s()
