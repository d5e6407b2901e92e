"""How many looks at sites go on at once: few while this process is busy with something else.

All threads of a Python process share one core. Where looks wait for far sites many at once cost
nothing; where they are limited by that core, each further one only takes turns from the threads
of requests and changes, and the turns themselves cost: at a thousand sites nearby, an apply beside
32 looks takes many times as long as alone (`make bench-scale`: a no-op of everything).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MANY = 32
"""While the process does nothing else, or waits."""
FEW = 4
"""While it is busy."""
BUSY_CORES = 0.3
"""It is busy when other things than these looks used more than this since it was last asked."""
PERIOD_S = 0.1
"""Of time at least lies between two such questions."""


class Pace:
    """Tells `at_once` by the CPU time that the process uses beside what `own_cpu_s` tells.
    Usable from several threads."""

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
        """How many looks may go on now."""
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
