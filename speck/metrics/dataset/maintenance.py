"""Tending: many small files become few large ones, and days that are old enough go.

A kill at any instant loses no row: a compacted file names its sources, and those that are still
there are removed by the next run. Readers drop what they meet twice.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import TransientError
from speck.metrics.dataset.files import COMPACT, PART, Disk, Partition, files_of, partitions, put
from speck.metrics.dataset.reading import LOCK, Damaged, each_once, read_file, why
from speck.metrics.dataset.schema import TABLES, Table
from speck.metrics.dataset.writer import in_order

TARGET_BYTES = 128 * 2**20
TARGET_ROWS = 500_000
"""A compacted file has at most so much: 0.36 GB of memory while half a million rows of `tasks` are
merged (measured)."""

OPEN_PARTS = 120
"""A day that is not over is compacted whenever it has so many new files."""

LATE = timedelta(minutes=10)
"""How long after midnight a day may get rows of its own."""

_SOURCES = "speck.sources"


@dataclass(slots=True)
class Tended:
    """What one run did. `busy`: nothing, since somebody reads, or tends, the dataset now."""

    busy: bool = False
    merged: int = 0
    written: int = 0
    dropped_days: list[date] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)


def tend(root: Path, now: datetime, days: int, disk: Disk | None = None) -> Tended:
    """Compact, and drop days that ended `days` or more before `now` (0: keep all).

    Does nothing while somebody is `reading`. Raises TransientError when the disk fails; what
    was not done is done by the next run.
    """
    done = Tended()
    if not root.is_dir():
        return done
    with (root / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            done.busy = True
            return done
        try:
            for table in TABLES.values():
                if days > 0:
                    _drop(root, table, now - timedelta(days=days), disk or Disk(), done)
                for partition in list(partitions(root, table)):
                    _Compaction(root, table, partition, disk or Disk(), done).run(now)
        except OSError as error:
            raise TransientError(
                f"cannot tend the metrics below {root}: {why(error)}; it is tried again:"
                " see to the disk"
            ) from error
    return done


def _drop(root: Path, table: Table, before: datetime, disk: Disk, done: Tended) -> None:
    """Days go as a whole: hidden by one rename, then removed."""
    for folder in sorted((root / table.name).glob(".day=*.dropped")):
        disk.remove_folder(folder)
    for day in sorted({partition.day for partition in partitions(root, table)}):
        if _end(day) > before:
            break
        folder = Partition(day).folder(root, table)
        gone = f".{folder.name}.dropped"
        disk.rename(folder, gone)
        disk.remove_folder(folder.with_name(gone))
        if day not in done.dropped_days:
            done.dropped_days.append(day)


@dataclass(frozen=True, slots=True)
class _Compaction:
    root: Path
    table: Table
    partition: Partition
    disk: Disk
    done: Tended
    told_apart: Callable[[], str] = lambda: secrets.token_hex(6)

    def run(self, now: datetime) -> None:
        """Files that are small become fewer; neighbours in time are merged."""
        found = self._mended(files_of(self.root, self.table, self.partition))
        over = now >= _end(self.partition.day) + LATE
        if not over:
            found = [path for path in found if path.name.startswith(PART)]
            if len(found) < OPEN_PARTS:
                return
        for group in list(self._groups(found)):
            self._merge(group)

    def _mended(self, found: list[Path]) -> list[Path]:
        """Without the sources of a run that died before it removed them."""
        if len(found) == 1 or not any(path.name.startswith(COMPACT) for path in found):
            return found
        gone = set()
        for path in found:
            if path.name.startswith(COMPACT):
                gone |= _sources(path)
        for path in found:
            if path.name in gone:
                self.disk.remove(path)
        return [path for path in found if path.name not in gone]

    def _groups(self, found: list[Path]) -> Iterator[list[Path]]:
        """Neighbours that fit into one file, two or more; a file that is large enough stays."""
        group: list[Path] = []
        rows = size = 0
        for path in found:
            try:
                has_rows, has_bytes = pq.read_metadata(path).num_rows, path.stat().st_size
            except (OSError, pa.ArrowException) as error:
                self.done.damaged.append(Damaged(path, why(error)))
                continue
            full = has_rows * 2 > TARGET_ROWS or has_bytes * 2 > TARGET_BYTES
            if full or rows + has_rows > TARGET_ROWS or size + has_bytes > TARGET_BYTES:
                if len(group) > 1:
                    yield group
                group, rows, size = [], 0, 0
            if not full:
                group.append(path)
                rows, size = rows + has_rows, size + has_bytes
        if len(group) > 1:
            yield group

    def _merge(self, group: list[Path]) -> None:
        tables, sources = [], []
        for path in group:
            try:
                tables.append(read_file(path, self.table))
                sources.append(path)
            except (OSError, pa.ArrowException) as error:
                self.done.damaged.append(Damaged(path, why(error)))
        if len(sources) < 2:
            return
        rows = in_order(self.table, each_once(self.table, pa.concat_tables(tables)))
        # named after its first source: files keep the order of their times
        name = f"{COMPACT}-{group[0].name.split('-')[1]}-{self.told_apart()}.parquet"
        told = {_SOURCES: json.dumps([path.name for path in sources])}
        put(group[0].parent, name, rows, self.disk, **told)
        for path in sources:
            self.disk.remove(path)
        self.done.merged += len(sources)
        self.done.written += 1


def _sources(path: Path) -> set[str]:
    try:
        told = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return set()  # is named where its rows are asked for
    return set(json.loads(told.get(_SOURCES.encode(), b"[]")))


def _end(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
