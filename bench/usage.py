"""CPU time of the machine and of processes."""

from __future__ import annotations

import psutil


class Machine:
    """The share of all cores that was in use since it was made. Work of a lower priority (`nice`)
    is left out: it gives way."""

    def __init__(self) -> None:
        self._before = self._seconds()

    @staticmethod
    def _seconds() -> tuple[float, float]:
        """All of it and the idle part; `guest` is in `user` already."""
        times = psutil.cpu_times()
        total = sum(times) - times.guest - times.guest_nice
        return total, times.idle + times.iowait + times.nice

    def cores(self) -> float:
        """How many cores' worth of time that was, on average."""
        return self.used() * (psutil.cpu_count() or 1)

    def used(self) -> float:
        total, idle = (now - was for now, was in zip(self._seconds(), self._before, strict=True))
        return 1 - idle / total if total else 0.0


def cpu_s(pid: int) -> float:
    """User and system time of a process, of all its threads."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def tree_cpu_s(pid: int) -> float:
    """CPU time of a process and all below it that live."""
    return sum(cpu_s(each) for each in processes(pid))


def processes(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
