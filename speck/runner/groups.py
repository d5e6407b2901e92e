"""Control groups of programs, where the system has delegated some to the runner (cgroups v2).

A group holds all processes of a program, whatever sessions they make, and limits their memory. Its
name follows from the program's id, so that a runner that starts again finds it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speck.runner.processes import Process, read_process, send

_MOUNT = Path("/sys/fs/cgroup")
_SUBGROUP = "runner"
_DELEGATED = ("user.delegate", "trusted.delegate")


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one program."""

    folder: Path

    def make(self, memory_bytes: int | None) -> None:
        """Make the group, with a limit of memory if the controller is there. Raises OSError."""
        self.folder.mkdir(exist_ok=True)
        limit = self.folder / "memory.max"
        if limit.exists():
            limit.write_text("max" if memory_bytes is None else str(memory_bytes))
            with suppress(OSError):  # or what is over the limit would be swapped
                (self.folder / "memory.swap.max").write_text("0")
            with suppress(OSError):
                (self.folder / "memory.oom.group").write_text("1")

    @property
    def limits_memory(self) -> bool:
        return (self.folder / "memory.max").exists()

    def enter(self, pid: int) -> None:
        """Put a process into it. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> list[Process]:
        """Its processes."""
        try:
            pids = (self.folder / "cgroup.procs").read_text().split()
        except OSError:
            return []
        processes = (read_process(int(pid)) for pid in pids)
        return [process for process in processes if process is not None]

    def kill(self) -> None:
        """End all of its processes."""
        try:
            (self.folder / "cgroup.kill").write_text("1")
        except OSError:  # older than Linux 5.14, or no group
            send(self.members(), signal.SIGKILL)

    def cpu_ms(self) -> float | None:
        """The CPU time of all that ever ran in it; None: it is not counted."""
        with suppress(OSError, LookupError, ValueError):
            lines = (self.folder / "cpu.stat").read_text().splitlines()
            return int(dict(line.split() for line in lines)["usage_usec"]) / 1000
        return None

    def count_kills(self) -> int:
        """How often the kernel has ended processes for want of memory."""
        with suppress(OSError, LookupError, ValueError):
            lines = (self.folder / "memory.events").read_text().splitlines()
            return int(dict(line.split() for line in lines)["oom_kill"])
        return 0

    def remove(self) -> None:
        with suppress(OSError):
            self.folder.rmdir()


def find_groups(wanted: Path | None) -> Path | None:
    """The folder for groups of programs: `wanted`, or below the group of the runner's unit if that
    is delegated to it; None: there is none. Raises OSError if a `wanted` one is unusable.

    In the unit's group no controller is enabled unless the runner was started in a group of its own
    there (`DelegateSubgroup=runner`): systemd puts the next runner into the unit's group, and one
    that distributes a controller takes no process. While programs of an earlier runner live, that
    group stays as it is, and no runner would start.
    """
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        _enable_memory(wanted)
        return wanted
    own = _find_own()
    has_subgroup = own is not None and own.name == _SUBGROUP
    unit = own.parent if own is not None and has_subgroup else own
    if unit is None or not _is_delegated(unit):
        return None
    programs = unit / "programs"
    try:
        programs.mkdir(exist_ok=True)
        if has_subgroup:
            _enable_memory(unit)
            _enable_memory(programs)
    except OSError:
        return None
    return programs


def limits_memory(groups: Path) -> bool:
    """Whether groups in that folder limit the memory of what is in them."""
    with suppress(OSError):
        return "memory" in (groups / "cgroup.subtree_control").read_text().split()
    return False


def _find_own() -> Path | None:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/") and (_MOUNT / "cgroup.controllers").exists():
                return _MOUNT / line.removeprefix("0::/")
    return None


def _is_delegated(folder: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _enable_memory(folder: Path) -> None:
    with suppress(OSError):  # without the controller the group still holds its processes
        (folder / "cgroup.subtree_control").write_text("+memory")
