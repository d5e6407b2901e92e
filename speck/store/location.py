"""The location of a store, by which a service notices that it was started on a copy.

The store holds where it was served last: the machine, and the numbers by which its file system
knows the folder and the lock file in it. A start after a reboot, a kill or `mv` finds the same
numbers; `cp`, `rsync` or unpacking an archive gives new ones. Between two boots only these are
compared. Within one boot the file system's own id is, too: snapshots keep the numbers of files.

A machine without an id (/etc/machine-id is missing in many containers) is told apart by these
numbers only, and so is one that shares its id with others, like containers of one image.
`SPECK_HOST_ID` replaces an id that changes though the machine is the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOST_ID = "SPECK_HOST_ID"
"""The environment variable that replaces /etc/machine-id."""

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK = "LOCK"
"""LevelDB makes this file with the store and never replaces it."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where a store lies: a hash of the machine's id and of its boot's (empty: unknown), the inode
    numbers of the folder and of its lock file, and the id of their file system."""

    host: str
    boot: str
    folder: int
    lock: int
    file_system: int

    @classmethod
    def of(cls, store: Path, env: Mapping[str, str] = os.environ) -> StoreLocation:
        """The location of the open store at a path. Raises OSError."""
        return cls(
            _hash(env.get(HOST_ID) or _read(_MACHINE_ID)),
            _hash(_read(_BOOT_ID)),
            store.stat().st_ino,
            (store / _LOCK).stat().st_ino,
            os.statvfs(store).f_fsid,
        )

    def find_copy(self, last: StoreLocation | None) -> str | None:
        """Why the store is a copy of the one that was served at `last`; None if it is the
        same, or was never served."""
        if last is None:
            return None
        if self.host and last.host and self.host != last.host:
            return "its folder was copied from another machine"
        if (self.folder, self.lock) != (last.folder, last.lock):
            return "its folder is a copy of the one that was served last"
        if self.boot and self.boot == last.boot and self.file_system != last.file_system:
            return "its folder is a snapshot of the one that was served last"
        return None


def _hash(identity: str) -> str:
    """Machine ids are not to leave their machine, and a backup holds this one."""
    return hashlib.sha256(f"speck|{identity}".encode()).hexdigest()[:32] if identity else ""


def _read(file: Path) -> str:
    """The content of a file with an id; empty if it is missing."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
