"""A CPU quota for a site's engine, so that sites of one machine differ in speed.

One control group for each engine that is slowed down, below the root of what this machine (or
container) may see; version 1 (`cpu.cfs_quota_us`) and version 2 (`cpu.max`) of Linux's cgroups.
The engine's JVMs are put into it before they begin, so that they see how many cores they have.
The broker is left out: the quota is then what Flink alone may use, which is what a placement
asks of a site, and a slow broker would hold back what other sites send to it.

A group's name follows from the fog's folder and the site, so that it is found again after any
crash; nothing about it has to be remembered.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from speck.errors import PermanentError
from speck.fog.process import Command

PERIOD_US = 100_000
"""How often the quota is given anew: Linux's own. Busy time is wall time, so it tells what a record
costs only where its work is not held back half-way, and a short period gives so little at a time
that it always is. Measured at speed 0.25 with records of 2 ms CPU, 60 a second (half of the quota):
9.0 ms busy for each at a period of 5 ms, 4.5 ms at 20 ms, 2.5 ms at 100 ms; the machine was busy
with other work, so only their order counts. The price: an engine that is saturated stands still
for up to 75 ms at a time."""

LEAST = 0.01
_LEAST_QUOTA_US = 1000  # the kernel's own
_MOUNTS = Path("/proc/self/mounts")
_GONE_S = 5.0
_ENTER = 'echo $$ > "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Controller:
    """Where groups with a CPU quota are made, and in which version's way."""

    root: Path
    version: int


def find_controller(mounts: Path = _MOUNTS) -> Controller:
    """The cpu controller. Raises PermanentError when this system has none."""
    lines: list[list[str]] = []
    with suppress(OSError):
        lines = [line.split() for line in mounts.read_text().splitlines()]
    for _, folder, kind, options, *_ in lines:
        if kind == "cgroup" and "cpu" in options.split(","):
            return Controller(Path(folder), 1)
    for _, folder, kind, *_ in lines:
        root = Path(folder)
        with suppress(OSError):
            if kind == "cgroup2" and "cpu" in (root / "cgroup.controllers").read_text().split():
                return Controller(root, 2)
    raise PermanentError(
        "cannot give sites different speeds: this system shows no cgroup controller 'cpu'"
        " (Linux with cgroup v1 or v2 has one); leave --speed away"
    )


def check_speeds(speeds: Mapping[str, float], sites: Sequence[str]) -> None:
    """Raises PermanentError for a site that is not to be, or a speed that cannot be had."""
    cores = os.cpu_count() or 1
    for site, speed in speeds.items():
        if site not in sites:
            raise PermanentError(
                f"cannot give {site} a speed: this fog has {', '.join(sites) or 'no sites'}"
            )
        if not LEAST <= speed <= cores:
            raise PermanentError(
                f"cannot give {site} the speed {speed:g}: it is the share of a core that its"
                f" engine may use, {LEAST} to {cores} on this machine"
            )


class Quotas:
    """The groups of the fog whose files lie in `folder`."""

    def __init__(self, folder: Path, mounts: Path = _MOUNTS) -> None:
        self._prefix = f"speck-fog-{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}-"
        self._mounts = mounts

    def hold(self, site: str, speed: float) -> Path:
        """Make the site's group, or set its quota anew; returns its folder.

        Raises PermanentError when this process may not; then no group is left behind.
        """
        controller = find_controller(self._mounts)
        group = controller.root / f"{self._prefix}{site}"
        is_new = not group.exists()
        try:
            if controller.version == 2:
                _enable(controller.root)
            group.mkdir(exist_ok=True)
            _set(controller, group, speed)
        except OSError as error:
            if is_new:
                with suppress(OSError):
                    group.rmdir()
            raise PermanentError(_explain_refusal(site, speed, controller, error)) from error
        return group

    def release(self) -> None:
        """Remove all groups of this fog; harmless when there are none, or no controller.

        Raises PermanentError when processes that are none of the fog's are in one.
        """
        try:
            root = find_controller(self._mounts).root
        except PermanentError:
            return
        for group in root.glob(f"{self._prefix}*"):
            _remove(group)


def into(group: Path, command: Command) -> Command:
    """The same command, begun within `group` under the same pid."""
    argv = ["/bin/sh", "-c", _ENTER, "sh", str(group / "cgroup.procs"), *command.argv]
    return replace(command, argv=argv)


def _enable(root: Path) -> None:
    control = root / "cgroup.subtree_control"
    if "cpu" not in control.read_text().split():
        control.write_text("+cpu")


def _set(controller: Controller, group: Path, speed: float) -> None:
    quota, period = max(round(speed * PERIOD_US), _LEAST_QUOTA_US), PERIOD_US
    if controller.version == 2:
        (group / "cpu.max").write_text(f"{quota} {period}")
        return
    # without a quota first: quota and period must fit to each other at every moment
    (group / "cpu.cfs_quota_us").write_text("-1")
    (group / "cpu.cfs_period_us").write_text(str(period))
    (group / "cpu.cfs_quota_us").write_text(str(quota))


def _explain_refusal(site: str, speed: float, controller: Controller, error: OSError) -> str:
    if os.geteuid() != 0:
        why = f"only root may set a CPU quota below {controller.root}; run it as root"
    else:
        why = (
            f"{controller.root} takes no group with a CPU quota ({error}); a container must be"
            " privileged and see the host's cgroups (--cgroupns=host)"
        )
    return f"cannot give {site} the speed {speed:g}: {why}, or leave --speed away"


def _remove(group: Path) -> None:
    """Whoever was in it has ended, but the kernel may need a moment to see it."""
    until = time.monotonic() + _GONE_S
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > until:
                raise PermanentError(
                    f"cannot remove the control group {group}: {error}; end the processes that"
                    " its cgroup.procs lists, then run `speck fog down` again"
                ) from error
        time.sleep(0.02)
