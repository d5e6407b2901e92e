"""CPU use and memory of this machine, from /proc. Standard library only: agents use it too."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_STAT = Path("/proc/stat")
_MEMORY = Path("/proc/meminfo")


class HostLoad:
    """The used share of all cores between two calls; thread-safe."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._lock = threading.Lock()
        self._before = self._read()
        self._share: float | None = None

    def cpu(self) -> float | None:
        """0 to 1, since the previous call (at first, since creation); None where /proc/stat does
        not exist. Waiting for disks counts as idle; time stolen by a hypervisor is not counted."""
        with self._lock:
            now = self._read()
            if now is None or self._before is None:
                return None
            busy, total = (new - old for new, old in zip(now, self._before, strict=True))
            if total > 0:
                self._before = now
                self._share = min(1.0, max(0.0, busy / total))
            return self._share

    def _read(self) -> tuple[int, int] | None:
        """(busy, total) in ticks since boot, summed over all cores."""
        try:
            first = self._stat.read_text().splitlines()[0].split()
            user, nice, system, idle, iowait, irq, softirq = map(int, first[1:8])
        except (OSError, ValueError, IndexError):
            return None
        busy = user + nice + system + irq + softirq
        return busy, busy + idle + iowait


def cores() -> int | None:
    """The number of cores of this machine."""
    return os.cpu_count()


def read_memory(file: Path = _MEMORY) -> tuple[int | None, int | None]:
    """The memory of this machine and how much of it new programs could have without swapping, in
    bytes; None where /proc/meminfo does not say so."""
    values: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in file.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                values[name] = int(rest.split()[0]) << 10  # "kB", but of 1024 bytes each
    return values.get("MemTotal"), values.get("MemAvailable")
