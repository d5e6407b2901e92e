"""A disk that can be filled and freed under a running service, in two ways.

A small tmpfs is the real thing, and needs root. A limit of the size of files, set from outside on
the processes that write, needs none: each write then fails as on a full disk, with another word.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pytest

TMPFS_BYTES = 64 * 2**20
_LEAST = 40
"""Bytes of a file: a semaphore needs 32, and lies elsewhere; the store needs more."""


class Disk(Protocol):
    """Where a service keeps its things."""

    home: Path

    def fill(self, pids: list[int]) -> None:
        """No byte more is taken from these processes."""

    def free(self, pids: list[int]) -> None:
        """There is room again."""

    def prepare(self) -> None:
        """Called in a new process: it too is to find the disk full."""


class Tmpfs:
    """A file system of its own."""

    def __init__(self, folder: Path):
        self.home = folder / "home"
        self._ballast = folder / "ballast"

    def fill(self, pids: list[int]) -> None:
        with self._ballast.open("ab", buffering=0) as out, suppress(OSError):
            for size in (2**16, 1):
                with suppress(OSError):
                    while out.write(b"\0" * size):
                        pass

    def free(self, pids: list[int]) -> None:
        self._ballast.unlink()

    def prepare(self) -> None:
        return


class Limited:
    """Processes that may write no file."""

    def __init__(self, folder: Path):
        self.home = folder / "home"

    def fill(self, pids: list[int]) -> None:
        self._limit(pids, _LEAST)

    def free(self, pids: list[int]) -> None:
        self._limit(pids, resource.RLIM_INFINITY)

    def prepare(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LEAST, resource.RLIM_INFINITY))

    def _limit(self, pids: list[int], size: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # a worker that has ended meanwhile
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def mounted(folder: Path) -> Iterator[Tmpfs]:
    """A tmpfs on `folder`; skips the test, saying why, where it cannot be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    process = subprocess.run(mount, capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip(f"cannot mount a tmpfs ({process.stderr.strip()}); the other variant ran")
    try:
        yield Tmpfs(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


KINDS = ("tmpfs", "limit")


@contextmanager
def small_disk(kind: str, folder: Path) -> Iterator[Disk]:
    """One of the two, in a folder."""
    if kind == "limit":
        yield Limited(folder)
        return
    with mounted(folder / "disk") as tmpfs:
        yield tmpfs
