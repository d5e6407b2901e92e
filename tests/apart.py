"""Processes for which a folder is not there: a mount namespace of their own hides it.

Sites on one machine could read each other's disks, and a test of state that travels would pass
without a transfer. File modes do not help: root reads everything, and the sites' processes
belong to one user.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speck.fog.process import Command, Process
from speck.fog.sites import Fog

_HIDE = (
    'for d in $SPECK_HIDDEN; do mount -t tmpfs -o size=4k tmpfs "$d" || exit 99; done; exec "$@"'
)


@functools.cache
def _unshare() -> tuple[str, ...]:
    """How this user makes a mount namespace: root at once, others inside a user namespace."""
    way = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")
    process = subprocess.run([*way, "true"], capture_output=True, text=True, check=False)
    assert process.returncode == 0, (
        f"cannot make a mount namespace ({process.stderr.strip()}): allow user namespaces"
        " (sysctl kernel.unprivileged_userns_clone=1), or run this test as root"
    )
    return way


def hiding(command: Command, folders: Sequence[Path]) -> Command:
    """The same program, which finds `folders` empty and cannot write there."""
    assert all(" " not in str(folder) for folder in folders)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    env = {**command.env, "SPECK_HIDDEN": " ".join(map(str, folders))}
    argv = [*_unshare(), "sh", "-c", _HIDE, "sh", *command.argv]
    return replace(command, argv=argv, env=env)


def sees(process: Process, folder: Path) -> list[str]:
    """The content of a folder as a process sees it."""
    return sorted(os.listdir(f"/proc/{process.pid}/root{folder}"))


def apart_fog(folder: Path) -> Fog:
    """A fog (to be brought up with `shared_state=False`) in which every site's processes find
    the state folders of the others empty."""

    def wrap(site: str, command: Command) -> Command:
        others = [fog.state_folder(other.name) for other in fog.sites() if other.name != site]
        return hiding(command, others)

    fog = Fog(folder, wrap=wrap)
    return fog
