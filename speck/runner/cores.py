"""How many cores the programs of a runner may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OWN = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def count_cores(own: Path = _OWN, mount: Path = _MOUNT) -> float:
    """The cores that this process may use; a CPU quota of its control groups counts as a fraction.
    Programs run in groups below the runner's, or in its own."""
    return min([float(len(os.sched_getaffinity(0))), *_list_quotas(own, mount)])


def _list_quotas(own: Path, mount: Path) -> Iterator[float]:
    lines = []
    with suppress(OSError):
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    for _, controllers, path in lines:
        if not controllers:
            yield from _list_quotas_above(mount, path, "cpu.max")
        elif "cpu" in controllers.split(","):
            yield from _list_quotas_above(mount / "cpu", path, "cpu.cfs_quota_us")


def _list_quotas_above(mount: Path, path: str, name: str) -> Iterator[float]:
    """Those of a group and of all above it."""
    folder = mount / path.strip("/")
    for each in (folder, *folder.parents):
        if each == mount.parent:
            return
        with suppress(OSError, ValueError, ZeroDivisionError):
            words = (each / name).read_text().split()
            if name == "cpu.cfs_quota_us":  # version 1 has the period in a file of its own
                words += (each / "cpu.cfs_period_us").read_text().split()
            quota, period = map(int, words)  # of a group without a quota "max", or -1
            if quota > 0:
                yield quota / period
