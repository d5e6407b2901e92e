"""Takes the rows of an import into the dataset: those that it does not hold yet, all or none.

Only one batch of rows, and the keys of stored rows of about the same time, are in memory.
"""

from __future__ import annotations

import secrets
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speck.errors import InvalidError, TransientError
from speck.metrics.dataset.files import (
    PART,
    Partition,
    StagedFiles,
    UnfinishedError,
    day_of,
    files_of,
    make_file_name,
)
from speck.metrics.dataset.reading import hold_files, select_new
from speck.metrics.dataset.schema import Table
from speck.metrics.dataset.storage import Storage

MOST_ROWS = 10_000_000
"""The most rows of one import."""
MOST_PARTITIONS = 2_000
"""The most days, times compositions, of one import: each gets a file of its own."""
MOST_KEYS = 500_000
"""The keys of stored rows that are compared with new ones at a time, as long as the new ones can
be split by time."""


class Arrivals:
    """The rows of one import into `table` in `storage`, from a file that its user calls `name`."""

    def __init__(self, storage: Storage, table: Table, name: str):
        self.rows = self.new = 0
        self.since: datetime | None = None
        self.until: datetime | None = None
        self._storage = storage
        self._table = table
        self._name = name
        self._files = StagedFiles(storage)
        self._staged: dict[Partition, list[str]] = {}

    def add(self, rows: pa.Table) -> None:
        """Take those rows that are new. Raises InvalidError for too many, TransientError if the
        disk fails."""
        if rows.num_rows == 0:
            return
        self.rows += rows.num_rows
        self.refuse_too_many(self.rows)
        span = pc.min_max(rows["at"]).as_py()
        self.since = min(self.since or span["min"], span["min"])
        self.until = max(self.until or span["max"], span["max"])
        for partition, part in _split_by_partition(self._table, rows).items():
            if len(self._staged.setdefault(partition, [])) == 0:
                self._refuse_too_many_partitions()
            with hold_files(self._storage):
                new_rows = self._select_new(partition, part)
            if new_rows.num_rows:
                self.new += new_rows.num_rows
                self._stage(partition, new_rows)

    def refuse_too_many(self, rows: int) -> None:
        """Raise InvalidError if an import may not have so many rows."""
        if rows > MOST_ROWS:
            raise InvalidError(
                f"cannot import {self._name}: it has more than {MOST_ROWS} rows; split it by time"
            )

    def publish(self) -> None:
        """Let all new rows appear in the dataset. Raises TransientError if the disk fails."""
        if not self.new:
            return
        try:
            self._files.publish()
        except UnfinishedError as error:
            raise TransientError(
                f"cannot finish the import below {self._storage}: {error.strerror or error};"
                " the service finishes it at its next start: do not repeat the import"
            ) from error
        except OSError as error:
            raise self._cannot_write(error) from error

    def discard(self) -> None:
        """Remove what was not published."""
        self._files.discard()

    def _refuse_too_many_partitions(self) -> None:
        if len(self._staged) > MOST_PARTITIONS:
            raise InvalidError(
                f"cannot import {self._name}: its rows are of more than {MOST_PARTITIONS} days and"
                " compositions; split it"
            )

    def _stage(self, partition: Partition, rows: pa.Table) -> None:
        name = make_file_name(PART, pc.min(rows["at"]).as_py(), secrets.token_hex(6))
        try:
            path = self._files.add(f"{partition.folder(self._table)}/{name}", rows)
        except OSError as error:
            raise self._cannot_write(error) from error
        self._staged[partition].append(path)

    def _cannot_write(self, error: OSError) -> TransientError:
        return TransientError(
            f"cannot write the imported rows below {self._storage}: {error.strerror or error};"
            f" nothing was imported: {self._storage.advice} and repeat the import"
        )

    def _select_new(self, partition: Partition, rows: pa.Table) -> pa.Table:
        """The rows whose key neither the dataset nor an earlier batch holds, each once."""
        span = pc.min_max(rows["at"]).as_py()
        stored = files_of(self._storage, self._table, partition)
        files = [*(file.path for file in stored), *self._staged[partition]]
        groups = [
            (file, numbers, count)
            for file in files
            for numbers, count in [_find_row_groups(self._storage, file, span["min"], span["max"])]
            if numbers
        ]
        is_wide = span["max"] > span["min"]
        if is_wide and sum(count for _, _, count in groups) > MOST_KEYS:
            ordered = rows.sort_by("at")
            middle = ordered["at"][ordered.num_rows // 2]
            halves = (pc.less(ordered["at"], middle), pc.greater_equal(ordered["at"], middle))
            if all(pc.any(half).as_py() for half in halves):
                parts = [self._select_new(partition, ordered.filter(half)) for half in halves]
                return pa.concat_tables(parts)
        keys = [
            _read_keys(self._storage, self._table, file, numbers, span["min"], span["max"])
            for file, numbers, _ in groups
        ]
        empty = self._table.schema.empty_table().select(list(self._table.key))
        return select_new(self._table, pa.concat_tables([empty, *keys]), rows)


def _split_by_partition(table: Table, rows: pa.Table) -> dict[Partition, pa.Table]:
    """Split the rows by day and composition."""
    days = pc.floor_temporal(rows["at"], unit="day")
    keyed = rows.append_column("day", days)
    parts: dict[Partition, pa.Table] = {}
    for day in pc.unique(days).to_pylist():
        of_day = keyed.filter(pc.equal(keyed["day"], pa.scalar(day, days.type)))
        if "composition" not in rows.schema.names:
            parts[Partition(day_of(day))] = of_day.select(table.schema.names)
            continue
        for composition in pc.unique(of_day["composition"]).to_pylist():
            of_composition = of_day.filter(pc.equal(of_day["composition"], composition))
            parts[Partition(day_of(day), composition)] = of_composition.select(table.schema.names)
    return parts


def _find_row_groups(
    storage: Storage, file: str, since: datetime, until: datetime
) -> tuple[list[int], int]:
    """The row groups of a file that may hold rows of these times, and how many rows they have; a
    file that cannot be read has none."""
    try:
        with storage.open(file) as source:
            metadata = pq.read_metadata(source)
    except (OSError, pa.ArrowException):
        return [], 0
    numbers, count = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(0).statistics
        known = statistics is not None and statistics.has_min_max
        if group.column(0).path_in_schema != "at" or not known:
            known = False
        if not known or (statistics.min <= until and statistics.max >= since):
            numbers.append(number)
            count += group.num_rows
    return numbers, count


def _read_keys(
    storage: Storage,
    table: Table,
    file: str,
    numbers: list[int],
    since: datetime,
    until: datetime,
) -> pa.Table:
    """The keys of the rows of these times; none of a file that cannot be read."""
    columns = list(dict.fromkeys(("at", *table.key)))
    schema = pa.schema([table.schema.field(name) for name in columns])
    parts = [schema.empty_table()]
    try:
        with storage.open(file) as source:
            parquet = pq.ParquetFile(source)
            for number in numbers:
                rows = parquet.read_row_group(number, columns, use_threads=False).cast(schema)
                at = rows["at"]
                within = pc.and_(
                    pc.greater_equal(at, pa.scalar(since, at.type)),
                    pc.less_equal(at, pa.scalar(until, at.type)),
                )
                parts.append(rows.filter(within))
    except (OSError, pa.ArrowException):
        return schema.empty_table().select(list(table.key))
    return pa.concat_tables(parts).select(list(table.key))
