"""CPU quotas for the engines of sites, so that sites on one machine differ in speed.

Each slowed-down engine has a control group below the root that this machine (or container) sees.
Versions 1 (`cpu.cfs_quota_us`) and 2 (`cpu.max`) of Linux's cgroups are supported. The engine's
JVMs enter the group before they start, so that they see how many cores they have. The quota does
not include the broker: placement needs the capacity of Flink alone, and a slow broker would delay
what other sites send to it.

A group's name is derived from the fog's folder and the site, so that it can be found after any
crash without being recorded.
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
"""The period of the quota, Linux's default. Flink's busy time is wall time, so it shows the cost of
a record only if its processing is not throttled half-way, and with a short period it always is.
Measured at speed 0.25 with records of 2 ms CPU, 60 per second (half of the quota): 9.0 ms busy for
each record at a period of 5 ms, 4.5 ms at 20 ms, 2.5 ms at 100 ms; the machine ran other work, so
only their order counts. The drawback: a saturated engine pauses for up to 75 ms at a time."""

LEAST = 0.01
_LEAST_QUOTA_US = 1000  # the kernel's own
_MOUNTS = Path("/proc/self/mounts")
_GONE_S = 5.0
_ENTER = 'echo $$ > "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Controller:
    """Where groups with a CPU quota are created, and the version of cgroups there."""

    root: Path
    version: int


def find_controller(mounts: Path = _MOUNTS) -> Controller:
    """Find the cpu controller. Raises PermanentError when this system has none."""
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
        "cannot give sites different speeds: this system has no cgroup controller 'cpu'"
        " (Linux with cgroup v1 or v2 has one); omit --speed"
    )


def check_speeds(speeds: Mapping[str, float], sites: Sequence[str]) -> None:
    """Raises PermanentError for an unknown site, or a speed out of range."""
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
    """The control groups of the fog in `folder`."""

    def __init__(self, folder: Path, mounts: Path = _MOUNTS) -> None:
        self._prefix = f"speck-fog-{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}-"
        self._mounts = mounts

    def hold(self, site: str, speed: float) -> Path:
        """Create the site's group, or change its quota; returns the group's folder.

        Raises PermanentError when this process may not; then no new group remains.
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
        """Remove all groups of this fog; does nothing when there are none, or no controller.

        Raises PermanentError when a group contains processes that do not belong to the fog.
        """
        try:
            root = find_controller(self._mounts).root
        except PermanentError:
            return
        for group in root.glob(f"{self._prefix}*"):
            _remove(group)


def into(group: Path, command: Command) -> Command:
    """The command, started within `group` under the same pid."""
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
    # remove the quota first: quota and period must be consistent at every moment
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
    """Remove a group. Its processes have ended, but the kernel may take a moment to notice."""
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
