"""Maintenance: merges small files into large ones and drops old days.

A kill at any instant loses no row: a compacted file lists its sources, and the next run removes
those that still exist. Readers drop duplicate rows.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import TransientError
from speck.metrics.dataset.files import (
    COMPACT,
    PART,
    Disk,
    Partition,
    files_of,
    list_partitions,
    put,
)
from speck.metrics.dataset.origins import ORIGINS, UNIT_S, UNITS, sum_origins
from speck.metrics.dataset.reading import LOCK, Damaged, describe_error, drop_duplicates, read_file
from speck.metrics.dataset.schema import TABLES, Table
from speck.metrics.dataset.writer import sort_rows

TARGET_BYTES = 128 * 2**20
TARGET_ROWS = 500_000
"""Maximum size of a compacted file. Merging half a million rows of `tasks` needs 0.36 GB of memory
(measured)."""

OPEN_PARTS = 120
"""The current day is compacted whenever it has this many new files."""

LATE = timedelta(minutes=10)
"""How long after midnight rows of the previous day may still arrive."""

_SOURCES = "speck.sources"


@dataclass(slots=True)
class MaintenanceReport:
    """What one run did. `busy`: nothing, since the dataset is locked for reading or maintenance."""

    busy: bool = False
    merged: int = 0
    written: int = 0
    dropped_days: list[date] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)


def maintain(root: Path, now: datetime, days: int, disk: Disk | None = None) -> MaintenanceReport:
    """Compact files, and drop days that ended `days` or more before `now` (0: keep all).

    Does nothing while a reader holds the files (`hold_files`). Raises TransientError if the disk
    fails; the next run does the rest.
    """
    report = MaintenanceReport()
    if not root.is_dir():
        return report
    with (root / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report.busy = True
            return report
        try:
            for table in TABLES.values():
                before = now - timedelta(days=days) if days > 0 else None
                if before is not None:
                    _drop(root, table, before, disk or Disk(), report)
                _drop_units(root, table, before)
                for partition in list(list_partitions(root, table)):
                    _Compaction(root, table, partition, disk or Disk(), report).run(now)
        except OSError as error:
            raise TransientError(
                f"cannot maintain the metrics below {root}: {describe_error(error)}; it is"
                " retried: check the disk"
            ) from error
    return report


def _drop(
    root: Path, table: Table, before: datetime, disk: Disk, report: MaintenanceReport
) -> None:
    """Drop whole days: a rename hides a day before its files are removed."""
    for folder in sorted((root / table.name).glob(".day=*.dropped")):
        disk.remove_folder(folder)
    for day in sorted({partition.day for partition in list_partitions(root, table)}):
        if _end_of(day) > before:
            break
        folder = Partition(day).folder(root, table)
        dropped_name = f".{folder.name}.dropped"
        disk.rename(folder, dropped_name)
        disk.remove_folder(folder.with_name(dropped_name))
        if day not in report.dropped_days:
            report.dropped_days.append(day)


def _drop_units(root: Path, table: Table, before: datetime | None) -> None:
    """Drop sums of units that end before a time, and those that newer ones have replaced."""
    newest: dict[tuple[str, int], Path] = {}
    folders = [path for path in (root / UNITS / table.name).glob("*/*-*") if path.is_dir()]
    for path in sorted(folders, key=lambda path: path.stat().st_mtime_ns):
        unit = path.parent.name, int(path.name.partition("-")[0])
        if (replaced := newest.get(unit)) is not None:
            shutil.rmtree(replaced)
        newest[unit] = path
    for (_, begin), path in newest.items():
        if before is not None and (begin + 1) * UNIT_S <= before.timestamp():
            shutil.rmtree(path)


@dataclass(frozen=True, slots=True)
class _Compaction:
    root: Path
    table: Table
    partition: Partition
    disk: Disk
    report: MaintenanceReport
    make_suffix: Callable[[], str] = lambda: secrets.token_hex(6)

    def run(self, now: datetime) -> None:
        """Merge small files that are neighbours in time."""
        paths = self._drop_merged_sources(files_of(self.root, self.table, self.partition))
        is_over = now >= _end_of(self.partition.day) + LATE
        if not is_over:
            paths = [path for path in paths if path.name.startswith(PART)]
            if len(paths) < OPEN_PARTS:
                return
        for group in list(self._list_groups(paths)):
            self._merge(group)

    def _drop_merged_sources(self, paths: list[Path]) -> list[Path]:
        """Remove the sources that a killed run left behind; return the other files."""
        if len(paths) == 1 or not any(path.name.startswith(COMPACT) for path in paths):
            return paths
        merged_names = set()
        for path in paths:
            if path.name.startswith(COMPACT):
                merged_names |= _read_sources(path)
        for path in paths:
            if path.name in merged_names:
                self.disk.remove(path)
        return [path for path in paths if path.name not in merged_names]

    def _list_groups(self, paths: list[Path]) -> Iterator[list[Path]]:
        """Groups of two or more neighbours that fit into one file; large files stay."""
        group: list[Path] = []
        rows = size = 0
        for path in paths:
            try:
                has_rows, has_bytes = pq.read_metadata(path).num_rows, path.stat().st_size
            except (OSError, pa.ArrowException) as error:
                self.report.damaged.append(Damaged(path, describe_error(error)))
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
                self.report.damaged.append(Damaged(path, describe_error(error)))
        if len(sources) < 2:
            return
        rows = sort_rows(self.table, drop_duplicates(self.table, pa.concat_tables(tables)))
        # named after its first source, so that files stay ordered by time
        name = f"{COMPACT}-{group[0].name.split('-')[1]}-{self.make_suffix()}.parquet"
        metadata = {
            _SOURCES: json.dumps([path.name for path in sources]),
            ORIGINS: sum_origins(sources),
        }
        put(group[0].parent, name, rows, self.disk, **metadata)
        for path in sources:
            self.disk.remove(path)
        self.report.merged += len(sources)
        self.report.written += 1


def _read_sources(path: Path) -> set[str]:
    try:
        metadata = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return set()  # reported when its rows are read
    return set(json.loads(metadata.get(_SOURCES.encode(), b"[]")))


def _end_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
