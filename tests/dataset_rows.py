"""Rows of the dataset for tests, a clock that tests set, and a disk that fails on command."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa

from speck.metrics.dataset.local import Disk, LocalStorage
from speck.metrics.dataset.reading import list_files
from speck.metrics.dataset.schema import Table

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def task(second: float = 0.0, *, subtask: int = 0, composition: str = "c", **more: Any) -> Any:
    """A row of `tasks`, `second` seconds after noon."""
    return {
        "at": NOON + timedelta(seconds=second),
        "composition": composition,
        "job_name": "A",
        "site": "edge-a",
        "engine_job_id": "a1",
        "vertex": "v",
        "subtask": subtask,
        **more,
    }


def site(second: float = 0.0, *, name: str = "edge-a", **more: Any) -> Any:
    """A row of `sites`."""
    return {"at": NOON + timedelta(seconds=second), "site": name, "tier": "edge", **more}


def list_paths(root: Path, table: Table, *which: Any, **more: Any) -> list[Path]:
    """The finished files of a table."""
    return [root / file.path for file in list_files(LocalStorage(root), table, *which, **more)]


class HandClock:
    """A clock that a test sets; ids are numbered."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._ids = itertools.count(1)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - NOON).total_seconds()

    def wait(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)

    def wait_for(self, event: Event, seconds: float) -> bool:
        self.wait(seconds)
        return event.is_set()

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"[::-1]


class FullDisk(Disk):
    """A disk without room while `full`; half a file is written before it shows."""

    full = False

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        if self.full:
            path.write_bytes(b"PAR1 and then no more")
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, rows, metadata)


class DiedError(Exception):
    """The process was killed here."""


class MortalDisk(Disk):
    """A process that dies at the `at`-th thing it does to the disk: before it, or with half of
    it done."""

    def __init__(self, at: int, *, half: bool = False) -> None:
        self.calls_left = at
        self.half = half

    def _step(self, halfway: Callable[[], object]) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            if self.half:
                halfway()
            raise self._failure()

    def _failure(self) -> Exception:
        return DiedError()

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        self._step(lambda: path.write_bytes(b"PAR1 and then"))
        super().write(path, rows, metadata)

    def rename(self, path: Path, to: Path) -> None:
        self._step(lambda: path.rename(to))
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        self._step(lambda: path.unlink(missing_ok=True))
        super().remove(path)

    def remove_folder(self, path: Path) -> None:
        self._step(lambda: [one.unlink() for one in list(path.rglob("*.parquet"))[:1]])
        super().remove_folder(path)


class ErringDisk(MortalDisk):
    """A disk that fails once, and is well afterwards."""

    def _failure(self) -> Exception:
        return OSError(errno.EIO, "Input/output error")
