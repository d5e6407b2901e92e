"""Maintenance: merges small files into large ones and drops old days.

A kill at any instant loses no row: a compacted file lists its sources, and the next run removes
those that still exist. Readers drop duplicate rows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

import pyarrow as pa

from speck.errors import TransientError
from speck.metrics.dataset.files import (
    COMPACT,
    PART,
    Partition,
    is_finished,
    list_days,
    list_partitions,
)
from speck.metrics.dataset.footers import read_footer
from speck.metrics.dataset.origins import ORIGINS, UNIT_S, UNITS, sum_origins
from speck.metrics.dataset.reading import (
    Damaged,
    describe_error,
    drop_duplicates,
    hold_alone,
    read_file,
)
from speck.metrics.dataset.schema import TABLES, Table
from speck.metrics.dataset.storage import Storage, StoredFile
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


def maintain(storage: Storage, now: datetime, days: int) -> MaintenanceReport:
    """Compact files, and drop days that ended `days` or more before `now` (0: keep all).

    Does nothing while a reader holds the files (`hold_files`). Raises TransientError if the disk
    fails; the next run does the rest.
    """
    report = MaintenanceReport()
    if not storage.list_folders(""):
        return report
    with hold_alone(storage) as is_free:
        if not is_free:
            report.busy = True
            return report
        try:
            for table in TABLES.values():
                before = now - timedelta(days=days) if days > 0 else None
                if before is not None:
                    _drop(storage, table, before, report)
                _drop_units(storage, table, before)
                for partition, files in list(list_partitions(storage, table)):
                    _Compaction(storage, table, partition, report).run(files, now)
        except OSError as error:
            raise TransientError(
                f"cannot maintain the metrics below {storage}: {describe_error(error)}; it is"
                f" retried: {storage.advice}"
            ) from error
    return report


def _drop(storage: Storage, table: Table, before: datetime, report: MaintenanceReport) -> None:
    """Drop whole days: each is hidden before its files are removed."""
    storage.finish_removals(table.name)
    for day in list_days(storage, table):
        if _end_of(day) > before:
            break
        storage.remove_folder(Partition(day).folder(table))
        if day not in report.dropped_days:
            report.dropped_days.append(day)


def _drop_units(storage: Storage, table: Table, before: datetime | None) -> None:
    """Drop sums of units that end before a time, and those that newer ones have replaced."""
    newest: dict[tuple[str, int], StoredFile] = {}
    outdated: list[StoredFile] = []
    files = [file for file in storage.list_files(f"{UNITS}/{table.name}") if is_finished(file)]
    for file in sorted(files, key=lambda file: file.version):
        unit = file.folder, int(file.name.partition("-")[0])
        if (replaced := newest.get(unit)) is not None:
            outdated.append(replaced)
        newest[unit] = file
    for (_, begin), file in newest.items():
        if before is not None and (begin + 1) * UNIT_S <= before.timestamp():
            outdated.append(file)
    storage.map(lambda file: storage.remove(file.path), outdated)


@dataclass(frozen=True, slots=True)
class _Compaction:
    storage: Storage
    table: Table
    partition: Partition
    report: MaintenanceReport
    make_suffix: Callable[[], str] = lambda: secrets.token_hex(6)

    def run(self, files: list[StoredFile], now: datetime) -> None:
        """Merge those files that are small and neighbours in time."""
        files = self._drop_merged_sources(files)
        is_over = now >= _end_of(self.partition.day) + LATE
        if not is_over:
            files = [file for file in files if file.name.startswith(PART)]
            if len(files) < OPEN_PARTS:
                return
        for group in list(self._list_groups(files)):
            self._merge(group)

    def _drop_merged_sources(self, files: list[StoredFile]) -> list[StoredFile]:
        """Remove the sources that a killed run left behind; return the other files."""
        compacted = [file for file in files if file.name.startswith(COMPACT)]
        if len(files) == 1 or not compacted:
            return files
        merged_names: set[str] = set()
        for file in compacted:
            merged_names |= _read_sources(self.storage, file)
        merged = [file.path for file in files if file.name in merged_names]
        self.storage.map(self.storage.remove, merged)
        return [file for file in files if file.name not in merged_names]

    def _list_groups(self, files: list[StoredFile]) -> Iterator[list[StoredFile]]:
        """Groups of two or more neighbours that fit into one file; large files stay."""
        group: list[StoredFile] = []
        rows = size = 0
        for file in files:
            try:
                has_rows, has_bytes = read_footer(self.storage, file).num_rows, file.size
            except (OSError, pa.ArrowException) as error:
                self._report_damaged(file, error)
                continue
            full = has_rows * 2 > TARGET_ROWS or has_bytes * 2 > TARGET_BYTES
            if full or rows + has_rows > TARGET_ROWS or size + has_bytes > TARGET_BYTES:
                if len(group) > 1:
                    yield group
                group, rows, size = [], 0, 0
            if not full:
                group.append(file)
                rows, size = rows + has_rows, size + has_bytes
        if len(group) > 1:
            yield group

    def _merge(self, group: list[StoredFile]) -> None:
        tables, sources = [], []
        for file in group:
            try:
                tables.append(read_file(self.storage, file.path, self.table))
                sources.append(file)
            except (OSError, pa.ArrowException) as error:
                self._report_damaged(file, error)
        if len(sources) < 2:
            return
        rows = sort_rows(self.table, drop_duplicates(self.table, pa.concat_tables(tables)))
        # named after its first source, so that files stay ordered by time
        name = f"{COMPACT}-{group[0].name.split('-')[1]}-{self.make_suffix()}.parquet"
        metadata = {
            _SOURCES: json.dumps([file.name for file in sources]),
            ORIGINS: sum_origins(self.storage, sources),
        }
        self.storage.put(f"{group[0].folder}/{name}", rows, metadata)
        self.storage.map(self.storage.remove, [file.path for file in sources])
        self.report.merged += len(sources)
        self.report.written += 1

    def _report_damaged(self, file: StoredFile, error: Exception) -> None:
        damaged = Damaged(self.storage.name_of(file.path), describe_error(error))
        self.report.damaged.append(damaged)


@lru_cache(10_000)
def _read_sources(storage: Storage, file: StoredFile) -> frozenset[str]:
    try:
        metadata = read_footer(storage, file).metadata or {}
    except (OSError, pa.ArrowException):
        return frozenset()  # reported when its rows are read
    return frozenset(json.loads(metadata.get(_SOURCES.encode(), b"[]")))


def _end_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
