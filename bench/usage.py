"""CPU time of the machine and of processes, as /proc tells it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """The share of all cores that was in use since it was made."""

    def __init__(self) -> None:
        self._before = self._ticks()

    @staticmethod
    def _ticks() -> tuple[int, int]:
        words = [int(w) for w in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return sum(words), words[3] + words[4]

    def cores(self) -> float:
        """How many cores' worth of time that was, on average."""
        return self.used() * (os.cpu_count() or 1)

    def used(self) -> float:
        total, idle = (now - was for now, was in zip(self._ticks(), self._before, strict=True))
        return 1 - idle / max(total, 1)


def cpu_s(pid: int) -> float:
    """User and system time of a process, of all its threads."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def tree_cpu_s(pid: int) -> float:
    """CPU time of a process and its children that live."""
    return sum(cpu_s(each) for each in processes(pid))


def processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes(int(child)))]
