"""Reads the dataset: the files of a time range, and their rows without duplicates.

The analyzer reads with Spark; this module serves export, import and the API. Rows are duplicated
for a moment during compaction, and when a file is imported twice: of rows with the same key only
the one in the first file by name counts.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speck.metrics.dataset.files import Partition, day_of, list_days, list_partitions
from speck.metrics.dataset.footers import read_footer
from speck.metrics.dataset.schema import Table
from speck.metrics.dataset.storage import Storage, StoredFile

LOCK = ".lock"
PIECE_ROWS = 1_000_000
"""Approximate number of rows to hold in memory at once."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that cannot be read; all of its rows are skipped."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self.why}; it is skipped: move it away"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition, or of a part of its day, without duplicates."""

    partition: Partition
    rows: pa.Table
    duplicates: int
    damaged: tuple[Damaged, ...]


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of a read: `rows` in the table's schema, plus `composition` if the table has
    it."""

    rows: pa.Table
    duplicates: int
    damaged: tuple[Damaged, ...]


@contextmanager
def hold_files(storage: Storage) -> Iterator[None]:
    """Keep compaction and retention from removing files while the context is open.

    A read-only dataset has no maintenance, so nothing is locked there. The lock of a dataset
    elsewhere is in a folder of the service that maintains it: it holds for analyses and exports of
    that service, and for nobody on another machine.
    """
    with ExitStack() as stack:
        try:
            if not storage.is_local:
                storage.local.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((storage.local / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        yield


@contextmanager
def hold_alone(storage: Storage) -> Iterator[bool]:
    """Hold the files for compaction and retention. False, with nothing held, while somebody else
    compacts or reads them (`hold_files`)."""
    storage.local.mkdir(parents=True, exist_ok=True)
    with (storage.local / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free


def list_files(
    storage: Storage,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> list[StoredFile]:
    """List files that may have rows of the time range and composition, without opening any."""
    partitions = _select_partitions(storage, table, since, until, composition)
    return [file for _, files in partitions for file in files]


def read(
    storage: Storage,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> pa.Table:
    """Read rows with `since` <= `at` < `until`, each key once; damaged files are logged."""
    result = scan(storage, table, since, until, composition)
    for damaged in result.damaged:
        _log.warning("%s", damaged)
    return result.rows


def scan(
    storage: Storage,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> ScanResult:
    """As `read`, with the damaged files and the number of duplicate rows."""
    parts = list(read_pieces(storage, table, since, until, composition))
    rows = [piece.rows for piece in parts] or [make_empty(table)]
    damaged = dict.fromkeys(one for piece in parts for one in piece.damaged)
    duplicates = sum(piece.duplicates for piece in parts)
    return ScanResult(pa.concat_tables(rows), duplicates, tuple(damaged))


def has_composition(storage: Storage, table: Table, name: str) -> bool:
    """Whether there are, or were, rows of a composition."""
    folders = storage.map(
        lambda day: storage.list_folders(Partition(day).folder(table)), list_days(storage, table)
    )
    return any(f"composition={name}" in names for names in folders)


def find_newest(storage: Storage, table: Table, composition: str | None = None) -> datetime | None:
    """Find the time of the newest row, from the files' statistics; damaged files are skipped."""
    with hold_files(storage):
        for day in reversed(list_days(storage, table)):
            files = [
                file
                for partition, files in list_partitions(storage, table, [day])
                if composition is None or partition.composition == composition
                for file in files
            ]
            newest = storage.map(lambda file: _read_newest(storage, file), files)
            times = [at for of_file in newest for at in of_file]
            if times:
                return max(times)
    return None


def _read_newest(storage: Storage, file: StoredFile) -> list[datetime]:
    """The newest times of a file's row groups."""
    try:
        bounds = _read_bounds(storage, file)
        if all(last != _LATEST for _, last in bounds):
            return [last for _, last in bounds]
        with storage.open(file.path) as source:
            return [pc.max(pq.read_table(source)["at"]).as_py()]
    except (OSError, pa.ArrowException):
        return []


def read_pieces(
    storage: Storage,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> Iterator[Piece]:
    """Read the rows of a time range, oldest day first, about `PIECE_ROWS` at a time."""
    with hold_files(storage):
        for partition, files in _select_partitions(storage, table, since, until, composition):
            for first, last in _slice_day(storage, partition, files):
                low = first if since is None else max(first, since)
                high = last if until is None else min(last, until)
                if low < high:
                    yield _read_piece(storage, table, partition, files, low, high)


def read_file(storage: Storage, path: str, table: Table) -> pa.Table:
    """Read all rows of a file in the table's schema; missing columns are null.

    Raises OSError or pyarrow's ArrowException if the file is damaged (checksums are verified) or
    its columns have other types.
    """
    with storage.open(path) as source:
        rows = pq.ParquetFile(source, page_checksum_verification=True).read()
    arrays = []
    for field in table.schema:
        if field.name in rows.schema.names:
            arrays.append(rows[field.name].cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(arrays, schema=table.schema)


def drop_duplicates(table: Table, rows: pa.Table) -> pa.Table:
    """Drop rows whose key occurred in an earlier row."""
    row_numbers = _number_first_of_each(table, rows)
    return rows if len(row_numbers) == rows.num_rows else rows.take(row_numbers)


def select_new(table: Table, existing: pa.Table, rows: pa.Table) -> pa.Table:
    """Select the rows whose key is not in `existing`, each key once."""
    both = pa.concat_tables([one.select(list(table.key)) for one in (existing, rows)])
    row_numbers = _number_first_of_each(table, both)
    return rows.take(
        pc.subtract(row_numbers.filter(pc.greater_equal(row_numbers, len(existing))), len(existing))
    )


def _number_first_of_each(table: Table, rows: pa.Table) -> pa.ChunkedArray:
    """The numbers of the first row of each key, ascending."""
    key = list(table.key)
    numbered = rows.select(key).append_column("row", pa.array(np.arange(rows.num_rows)))
    return numbered.group_by(key, use_threads=False).aggregate([("row", "min")])["row_min"]


def make_empty(table: Table) -> pa.Table:
    """An empty table, as `read` returns it."""
    return _add_composition(table, table.schema.empty_table(), "")


def describe_error(error: Exception) -> str:
    """Describe what is wrong with a file, in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return message.partition("\n")[0]


def _select_partitions(
    storage: Storage,
    table: Table,
    since: datetime | None,
    until: datetime | None,
    composition: str | None,
) -> Iterator[tuple[Partition, list[StoredFile]]]:
    days = [
        day
        for day in list_days(storage, table)
        if (since is None or day >= day_of(since)) and (until is None or day <= day_of(until))
    ]
    for partition, files in list_partitions(storage, table, days):
        if composition is None or partition.composition in (None, composition):
            yield partition, files


def _slice_day(
    storage: Storage, partition: Partition, files: list[StoredFile]
) -> Iterator[tuple[datetime, datetime]]:
    """Split the day of a partition so that each part has few rows."""
    rows = 0
    for file in files:
        try:
            rows += read_footer(storage, file).num_rows
        except (OSError, pa.ArrowException):
            continue  # reported when it is read
    count = -(-rows // PIECE_ROWS) or 1
    begin = datetime(partition.day.year, partition.day.month, partition.day.day, tzinfo=UTC)
    bounds = [begin + timedelta(days=1) * number / count for number in range(count + 1)]
    yield from itertools.pairwise(bounds)


def _read_piece(
    storage: Storage,
    table: Table,
    partition: Partition,
    files: list[StoredFile],
    low: datetime,
    high: datetime,
) -> Piece:
    tables, damaged = [table.schema.empty_table()], []
    for file in files:
        try:
            if not any(low <= last and first < high for first, last in _read_bounds(storage, file)):
                continue
            rows = read_file(storage, file.path, table)
        except (OSError, pa.ArrowException) as error:
            damaged.append(Damaged(storage.name_of(file.path), describe_error(error)))
            continue
        at = rows["at"]
        within = pc.and_(pc.greater_equal(at, pa.scalar(low)), pc.less(at, pa.scalar(high)))
        tables.append(rows.filter(within))
    all_rows = pa.concat_tables(tables)
    rows = drop_duplicates(table, all_rows)
    duplicates = all_rows.num_rows - rows.num_rows
    with_composition = _add_composition(table, rows, partition.composition or "")
    return Piece(partition, with_composition, duplicates, tuple(damaged))


def may_hold(storage: Storage, file: StoredFile, low: datetime, high: datetime) -> bool | None:
    """Whether the file can have rows of a time range, both ends included, by its statistics; None
    if it is damaged. One that has just been removed has none."""
    try:
        return any(low <= last and first <= high for first, last in _read_bounds(storage, file))
    except FileNotFoundError:
        return False
    except (OSError, pa.ArrowException):
        return None


@lru_cache(100_000)
def _read_bounds(storage: Storage, file: StoredFile) -> tuple[tuple[datetime, datetime], ...]:
    """The first and last time of each row group; a file never changes."""
    metadata = read_footer(storage, file)
    bounds = []
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(0)
        statistics = column.statistics
        if column.path_in_schema != "at" or statistics is None or not statistics.has_min_max:
            bounds.append((_EARLIEST, _LATEST))
        else:
            bounds.append((statistics.min, statistics.max))
    return tuple(bounds)


def _add_composition(table: Table, rows: pa.Table, composition: str) -> pa.Table:
    if "composition" not in table.partitions:
        return rows
    return rows.append_column("composition", pa.repeat(composition, rows.num_rows))
