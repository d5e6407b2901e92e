"""The writer: buffers rows in memory and writes them to files atomically."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from speck.clock import Clock, SystemClock
from speck.errors import TransientError
from speck.metrics.dataset.files import PART, Partition, make_file_name, sweep
from speck.metrics.dataset.rows import Row, partition_rows
from speck.metrics.dataset.schema import Table
from speck.metrics.dataset.storage import Storage

_log = logging.getLogger(__name__)

MAX_WAITING_ROWS = 1_000_000
"""Maximum number of rows to keep in memory while the disk fails."""


@dataclass(slots=True)
class _Buffer:
    """Rows of one partition that are not in a file yet."""

    table: Table
    partition: Partition
    since: float
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0

    def add(self, more: pa.Table) -> None:
        self.tables.append(more)
        self.rows += more.num_rows


class Writer:
    """Appends rows to the dataset in `storage`; thread-safe, one per writing process.

    Rows are written once the oldest of their partition has waited `roll_s` seconds (checked at each
    append), or once there are `roll_rows` of them. A kill loses waiting rows. A failed write is
    retried at the next append; meanwhile at most `max_waiting_rows` rows are kept, and the oldest
    are dropped and counted in `dropped`.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        roll_s: float = 60.0,
        roll_rows: int = 200_000,
        max_waiting_rows: int = MAX_WAITING_ROWS,
        clock: Clock | None = None,
    ):
        self.storage = storage
        self.dropped = 0
        self._roll_s = roll_s
        self._roll_rows = roll_rows
        self._max_waiting_rows = max_waiting_rows
        self._clock = clock or SystemClock()
        self._buffers: dict[tuple[str, Partition], _Buffer] = {}
        self._buffering = threading.Lock()
        self._writing = threading.Lock()
        try:
            sweep(storage)
        except OSError as error:
            _log.warning("cannot tidy %s, the next start does it: %s", storage, error)

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Append `rows`, with an aware datetime `at`, and `composition` if the table has it.

        Appends all rows or none. Raises InvalidError, which names table, column and value, and
        TransientError if the disk fails (the rows are kept then: do not append them again).
        """
        new = partition_rows(table, rows)
        now = self._clock.monotonic()
        with self._buffering:
            for partition, columns in new.items():
                key = (table.name, partition)
                buffer = self._buffers.setdefault(key, _Buffer(table, partition, now))
                buffer.add(columns)
            self._drop_oldest()
            due = [key for key, buffer in self._buffers.items() if self._is_due(buffer, now)]
        # while another thread writes, due rows wait for the next append
        if due and self._writing.acquire(blocking=False):
            try:
                self._write(due)
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Write all waiting rows. Raises TransientError; rows that were not written are kept."""
        with self._buffering:
            due = list(self._buffers)
        with self._writing:
            self._write(due)

    def close(self) -> None:
        """Flush; the writer can still be used afterwards."""
        self.flush()

    @property
    def waiting(self) -> int:
        """Number of rows that are not in a file yet."""
        with self._buffering:
            return sum(buffer.rows for buffer in self._buffers.values())

    def _is_due(self, buffer: _Buffer, now: float) -> bool:
        return now - buffer.since >= self._roll_s or buffer.rows >= self._roll_rows

    def _write(self, keys: Iterable[tuple[str, Partition]]) -> None:
        """Write one file per buffer, trying all of them; appends go on meanwhile."""
        failures = [each for each in self.storage.map(self._write_buffer, keys) if each]
        if failures:
            table, error = failures[-1]
            raise TransientError(
                f"cannot write metrics of {table.name} below {self.storage}: "
                f"{error.strerror or error}; the rows are kept and retried: {self.storage.advice}"
            ) from error

    def _write_buffer(self, key: tuple[str, Partition]) -> tuple[Table, OSError] | None:
        with self._buffering:
            buffer = self._buffers.pop(key, None)
        if buffer is None:
            return None
        try:
            self._put(buffer)
        except OSError as failure:
            self._take_back(key, buffer)
            return buffer.table, failure
        return None

    def _put(self, buffer: _Buffer) -> None:
        rows = sort_rows(buffer.table, pa.concat_tables(buffer.tables))
        name = make_file_name(PART, self._clock.now(), self._clock.new_id()[:12])
        self.storage.put(f"{buffer.partition.folder(buffer.table)}/{name}", rows, {})

    def _take_back(self, key: tuple[str, Partition], buffer: _Buffer) -> None:
        with self._buffering:
            newer = self._buffers.get(key)
            for table in newer.tables if newer is not None else ():
                buffer.add(table)
            self._buffers[key] = buffer
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Keep the maximum; rows that were appended together are dropped together."""
        excess = sum(buffer.rows for buffer in self._buffers.values()) - self._max_waiting_rows
        while excess > 0:
            oldest = min(self._buffers.values(), key=_first_time_of)
            dropped = oldest.tables.pop(0)
            oldest.rows -= dropped.num_rows
            self.dropped += dropped.num_rows
            excess -= dropped.num_rows
            if not oldest.tables:
                del self._buffers[oldest.table.name, oldest.partition]


def sort_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Sort rows by their key and then by time: similar neighbours compress well."""
    order = [(column, "ascending") for column in (*table.key[1:], "at")]
    return rows.sort_by(order)


def _first_time_of(buffer: _Buffer) -> datetime:
    first: datetime = buffer.tables[0]["at"][0].as_py()
    return first
