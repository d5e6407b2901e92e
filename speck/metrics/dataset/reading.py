"""Reading the dataset: which files hold a time range, and their rows, each once.

The analyzer reads with Spark; this is for what is small: export, import, the API. Files that are
being compacted hold rows twice for a moment, and so does what was imported twice: rows with the
same key are one row, that of the file whose name comes first.
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
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speck.metrics.dataset.files import Partition, day_of, files_of, partitions
from speck.metrics.dataset.schema import Table

LOCK = ".lock"
PIECE_ROWS = 1_000_000
"""Rows that are held in memory at once, about."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that cannot be read; none of its rows was."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self.why}; it is left out: move it away"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one partition, or of a part of its day; each key once."""

    partition: Partition
    rows: pa.Table
    duplicates: int
    damaged: tuple[Damaged, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What was read: `rows` in the table's schema, and `composition` where the table has it."""

    rows: pa.Table
    duplicates: int
    damaged: tuple[Damaged, ...]


@contextmanager
def reading(root: Path) -> Iterator[None]:
    """While this is held no file disappears: neither compaction nor retention works.

    Where nothing can be written nobody tends the dataset, and nothing is held.
    """
    with ExitStack() as held:
        try:
            lock = held.enter_context((root / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        yield


def paths(
    root: Path,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> list[Path]:
    """The files that may hold rows of the time range and composition; no file is opened."""
    wanted = _wanted(root, table, since, until, composition)
    return [path for partition in wanted for path in files_of(root, table, partition)]


def read(
    root: Path,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> pa.Table:
    """Rows with `since` <= `at` < `until`, each key once; damaged files are logged."""
    found = scan(root, table, since, until, composition)
    for damaged in found.damaged:
        _log.warning("%s", damaged)
    return found.rows


def scan(
    root: Path,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> Found:
    """As `read`, with the damaged files and how many rows were there more than once."""
    found = list(pieces(root, table, since, until, composition))
    rows = [piece.rows for piece in found] or [empty(table)]
    damaged = dict.fromkeys(one for piece in found for one in piece.damaged)
    duplicates = sum(piece.duplicates for piece in found)
    return Found(pa.concat_tables(rows), duplicates, tuple(damaged))


def pieces(
    root: Path,
    table: Table,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> Iterator[Piece]:
    """The rows of a time range, oldest day first, about `PIECE_ROWS` at a time."""
    with reading(root):
        for partition in _wanted(root, table, since, until, composition):
            files = files_of(root, table, partition)
            for first, last in _slices(partition, files):
                low = first if since is None else max(first, since)
                high = last if until is None else min(last, until)
                if low < high:
                    yield _piece(table, partition, files, low, high)


def read_file(path: Path, table: Table) -> pa.Table:
    """All rows of a file in the table's schema: columns that it has not are null.

    Raises OSError or pyarrow's ArrowException when the file is damaged (checksums are checked)
    or its columns are others.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        rows = file.read()
    arrays = []
    for field in table.schema:
        if field.name in rows.schema.names:
            arrays.append(rows[field.name].cast(field.type))
        else:
            arrays.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(arrays, schema=table.schema)


def each_once(table: Table, rows: pa.Table) -> pa.Table:
    """`rows` without those whose key was there before."""
    kept = _first_of_each(table, rows)
    return rows if len(kept) == rows.num_rows else rows.take(kept)


def not_there(table: Table, there: pa.Table, rows: pa.Table) -> pa.Table:
    """Those of `rows`, each key once, whose key is not in `there`."""
    both = pa.concat_tables([one.select(list(table.key)) for one in (there, rows)])
    kept = _first_of_each(table, both)
    return rows.take(pc.subtract(kept.filter(pc.greater_equal(kept, len(there))), len(there)))


def _first_of_each(table: Table, rows: pa.Table) -> pa.ChunkedArray:
    """The numbers of the rows, ascending, whose key comes first in them."""
    key = list(table.key)
    numbered = rows.select(key).append_column("row", pa.array(np.arange(rows.num_rows)))
    return numbered.group_by(key, use_threads=False).aggregate([("row", "min")])["row_min"]


def empty(table: Table) -> pa.Table:
    """No rows, as `read` gives them."""
    return _with_composition(table, table.schema.empty_table(), "")


def why(error: Exception) -> str:
    """What is wrong with a file, in one line."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said.partition("\n")[0]


def _wanted(
    root: Path,
    table: Table,
    since: datetime | None,
    until: datetime | None,
    composition: str | None,
) -> list[Partition]:
    return [
        partition
        for partition in partitions(root, table)
        if (since is None or partition.day >= day_of(since))
        and (until is None or partition.day <= day_of(until))
        and (composition is None or partition.composition in (None, composition))
    ]


def _slices(partition: Partition, files: list[Path]) -> Iterator[tuple[datetime, datetime]]:
    """The day of a partition, in as many parts as keep each small."""
    rows = 0
    for path in files:
        try:
            rows += pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException):
            continue  # is told when it is read
    count = -(-rows // PIECE_ROWS) or 1
    begin = datetime(partition.day.year, partition.day.month, partition.day.day, tzinfo=UTC)
    bounds = [begin + timedelta(days=1) * number / count for number in range(count + 1)]
    yield from itertools.pairwise(bounds)


def _piece(
    table: Table, partition: Partition, files: list[Path], low: datetime, high: datetime
) -> Piece:
    tables, damaged = [table.schema.empty_table()], []
    for path in files:
        try:
            if not _touches(path, low, high):
                continue
            rows = read_file(path, table)
        except (OSError, pa.ArrowException) as error:
            damaged.append(Damaged(path, why(error)))
            continue
        at = rows["at"]
        within = pc.and_(pc.greater_equal(at, pa.scalar(low)), pc.less(at, pa.scalar(high)))
        tables.append(rows.filter(within))
    together = pa.concat_tables(tables)
    rows = each_once(table, together)
    duplicates = together.num_rows - rows.num_rows
    named = _with_composition(table, rows, partition.composition or "")
    return Piece(partition, named, duplicates, tuple(damaged))


def _touches(path: Path, low: datetime, high: datetime) -> bool:
    """Whether the file can hold rows of the time range, as far as its statistics tell."""
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(0)
        told = column.statistics
        if column.path_in_schema != "at" or told is None or not told.has_min_max:
            return True
        if told.min < high and told.max >= low:
            return True
    return False


def _with_composition(table: Table, rows: pa.Table, composition: str) -> pa.Table:
    if "composition" not in table.partitions:
        return rows
    return rows.append_column("composition", pa.repeat(composition, rows.num_rows))
