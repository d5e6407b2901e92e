"""The writer: rows are kept in memory for a while and go to files that are whole at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from speck.clock import Clock, SystemClock
from speck.errors import TransientError
from speck.metrics.dataset.files import PART, Disk, Partition, file_name, put, sweep
from speck.metrics.dataset.rows import Row, partitioned
from speck.metrics.dataset.schema import Table

KEPT_ROWS = 1_000_000
"""Rows kept while the disk takes none."""


@dataclass(slots=True)
class _Buffer:
    """Rows of one partition that are in no file yet."""

    table: Table
    partition: Partition
    since: float
    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0

    def add(self, more: pa.Table) -> None:
        self.tables.append(more)
        self.rows += more.num_rows


class Writer:
    """Appends rows to the dataset at `root`; one for each process that writes, thread safe.

    Rows go to a file once the oldest of their partition has waited `roll_s` seconds, looked at
    whenever something is appended, or once there are `roll_rows`. A kill loses those that wait.
    Files that the disk does not take are tried again at the next append; meanwhile at most
    `kept_rows` rows are kept, the oldest are dropped and counted in `dropped`.
    """

    def __init__(
        self,
        root: Path,
        *,
        roll_s: float = 60.0,
        roll_rows: int = 200_000,
        kept_rows: int = KEPT_ROWS,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ):
        self.root = root
        self.dropped = 0
        self._roll_s = roll_s
        self._roll_rows = roll_rows
        self._kept_rows = kept_rows
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._buffers: dict[tuple[str, Partition], _Buffer] = {}
        self._buffering = threading.Lock()
        self._writing = threading.Lock()
        if root.exists():
            sweep(root)

    def append(self, table: Table, rows: Sequence[Row]) -> None:
        """Take `rows`: `at` an aware datetime, `composition` too where the table has it.

        All are taken or none. Raises InvalidError naming table, column and value; TransientError
        when the disk takes no file (the rows are kept then: do not append them again).
        """
        new = partitioned(table, rows)
        now = self._clock.monotonic()
        with self._buffering:
            for partition, columns in new.items():
                key = (table.name, partition)
                buffer = self._buffers.setdefault(key, _Buffer(table, partition, now))
                buffer.add(columns)
            self._drop_oldest()
            due = [key for key, buffer in self._buffers.items() if self._is_due(buffer, now)]
        # while another thread writes, what is due waits for the next append
        if due and self._writing.acquire(blocking=False):
            try:
                self._write(due)
            finally:
                self._writing.release()

    def flush(self) -> None:
        """Write all that waits. Raises TransientError; what the disk did not take is kept."""
        with self._buffering:
            due = list(self._buffers)
        with self._writing:
            self._write(due)

    def close(self) -> None:
        """Flush; the writer may be used again."""
        self.flush()

    @property
    def waiting(self) -> int:
        """Rows that are in no file yet."""
        with self._buffering:
            return sum(buffer.rows for buffer in self._buffers.values())

    def _is_due(self, buffer: _Buffer, now: float) -> bool:
        return now - buffer.since >= self._roll_s or buffer.rows >= self._roll_rows

    def _write(self, keys: Iterable[tuple[str, Partition]]) -> None:
        """One file for each; all are tried. Appending goes on meanwhile."""
        failure: tuple[Table, OSError] | None = None
        for key in keys:
            with self._buffering:
                buffer = self._buffers.pop(key, None)
            if buffer is None:
                continue
            try:
                self._put(buffer)
            except OSError as caught:
                failure = (buffer.table, caught)
                self._take_back(key, buffer)
        if failure is not None:
            table, error = failure
            raise TransientError(
                f"cannot write metrics of {table.name} below {self.root}: "
                f"{error.strerror or error}; the rows are kept and tried again: see to the disk"
            ) from error

    def _put(self, buffer: _Buffer) -> None:
        rows = in_order(buffer.table, pa.concat_tables(buffer.tables))
        name = file_name(PART, self._clock.now(), self._clock.new_id()[:12])
        put(buffer.partition.folder(self.root, buffer.table), name, rows, self._disk)

    def _take_back(self, key: tuple[str, Partition], buffer: _Buffer) -> None:
        with self._buffering:
            newer = self._buffers.get(key)
            for table in newer.tables if newer is not None else ():
                buffer.add(table)
            self._buffers[key] = buffer
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Keep the bound; what came together goes together."""
        over = sum(buffer.rows for buffer in self._buffers.values()) - self._kept_rows
        while over > 0:
            oldest = min(self._buffers.values(), key=_first_at)
            gone = oldest.tables.pop(0)
            oldest.rows -= gone.num_rows
            self.dropped += gone.num_rows
            over -= gone.num_rows
            if not oldest.tables:
                del self._buffers[oldest.table.name, oldest.partition]


def in_order(table: Table, rows: pa.Table) -> pa.Table:
    """`rows` sorted by what they are about and then by time: neighbours are alike, and small."""
    order = [(column, "ascending") for column in (*table.key[1:], "at")]
    return rows.sort_by(order)


def _first_at(buffer: _Buffer) -> datetime:
    first: datetime = buffer.tables[0]["at"][0].as_py()
    return first
