"""Reads the dataset into frames: a time range of a table, for one composition or all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer.contracts import contract_of
from speck.errors import NotFoundError
from speck.metrics.dataset import reading
from speck.metrics.dataset.files import Partition, day_of, list_partitions
from speck.metrics.dataset.reading import read_file
from speck.metrics.dataset.schema import TABLES, TASKS, Table
from speck.metrics.dataset.storage import Storage, StoredFile

T = TypeVar("T")

SMALL_BYTES = 4 << 20
"""Up to so many bytes of files, some 200 000 rows, compiling a query takes longer than it saves."""

_GONE = ("FILE_NOT_EXIST", "FileNotFoundException")
"""What Spark's errors say of a file that is no longer there."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Span:
    """A time range, both ends included; aware datetimes."""

    since: datetime
    until: datetime

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()

    def extend(self, by: timedelta) -> Span:
        """The range that begins earlier by this much."""
        return Span(self.since - by, self.until)


def read(
    spark: SparkSession,
    storage: Storage,
    table: Table,
    span: Span,
    composition: str | None = None,
    without: Collection[str] = (),
) -> DataFrame:
    """Read the rows of `table` in the span; an empty frame if there are no files.

    A column that a file lacks, since it came later, is null. Truncated files, which
    `find_damaged` lists, and the files `without` are skipped.
    """
    contract = contract_of(table)
    paths = _list_paths(storage, table, span, composition, without)
    if not paths:
        return spark.createDataFrame([], contract.ddl)
    folder = storage.uri_of(table.name)
    # Ranges of a file read at a time save round trips to object storage. On a disk, to hand them
    # over to threads takes longer than to read them.
    at_a_time = str(not folder.startswith("file:")).lower()
    frame = (
        spark.read.schema(contract.ddl)
        .option("basePath", folder)
        .option("parquet.hadoop.vectored.io.enabled", at_a_time)
        .parquet(*map(storage.uri_of, paths))
        .where(F.col("at").between(_to_column(span.since), _to_column(span.until)))
    )
    return contract.check(frame, f"read {table.name}")


def find_newest(storage: Storage, composition: str | None = None) -> datetime:
    """Find the time of the newest sample of a task. Raises NotFoundError if there is none."""
    newest = reading.find_newest(storage, TASKS, composition)
    if newest is not None:
        return newest
    of = f" of composition {composition!r}" if composition else ""
    raise NotFoundError(
        f"cannot analyse {storage}: it holds no samples of tasks{of};"
        " let the service collect metrics for a while (SPECK_METRICS_S above 0), or import some"
    )


def count_bytes(storage: Storage, tables: Iterable[Table], span: Span) -> int:
    """Bytes of the files that may hold rows of the span."""
    return sum(
        file.size
        for table in tables
        for _, files in _list_partitions(storage, table, span)
        for file, holds in _check_files(storage, files, span)
        if holds
    )


def retry_without_damaged(work: Callable[[Collection[str]], T], storage: Storage, span: Span) -> T:
    """Call `work` with the files that it must skip, and return its result.

    At first there are none. If Spark fails, they are the files with damaged contents, which are
    found by reading all files. If a file has gone, since somebody merges files who does not see our
    lock, `work` is called again and lists them anew.
    """
    try:
        return _retry_while_files_go(lambda: work(()))
    except (PySparkException, Py4JJavaError):
        damaged_files = [
            file.path
            for table in TABLES.values()
            for _, files in _list_partitions(storage, table, span)
            for file in files
            if not _is_readable(storage, file, table)
        ]
        if not damaged_files:
            raise
        return work(damaged_files)


def _retry_while_files_go(work: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return work()
        except (PySparkException, Py4JJavaError) as error:
            if not any(sign in str(error) for sign in _GONE):
                raise
    return work()


def _is_readable(storage: Storage, file: StoredFile, table: Table) -> bool:
    try:
        read_file(storage, file.path, table)
    except (OSError, pa.ArrowException):
        return False
    return True


def find_damaged(
    storage: Storage, table: Table, span: Span, composition: str | None = None
) -> list[str]:
    """Find truncated files: they do not end as Parquet files do."""
    partitions = _list_partitions(storage, table, span, composition)
    return sorted(
        file.path
        for _, files in partitions
        for file, holds in _check_files(storage, files, span)
        if holds is None
    )


def _list_paths(
    storage: Storage,
    table: Table,
    span: Span,
    composition: str | None,
    without: Collection[str],
) -> list[str]:
    """Folders to read, or single files of a folder that also has damaged ones or ones without rows
    of the span."""
    folders: dict[str, list[StoredFile]] = {}
    for partition, files in _list_partitions(storage, table, span, composition):
        folder = (Partition(partition.day) if composition is None else partition).folder(table)
        folders.setdefault(folder, []).extend(files)
    paths: list[str] = []
    for folder, files in folders.items():
        chosen = [
            file.path
            for file, holds in _check_files(storage, files, span)
            if holds and file.path not in without
        ]
        paths += [folder] if len(chosen) == len(files) else chosen
    return paths


def _check_files(
    storage: Storage, files: list[StoredFile], span: Span
) -> list[tuple[StoredFile, bool | None]]:
    """Whether files can have rows of the span; None for a truncated one."""
    holds = storage.map(lambda file: reading.may_hold(storage, file, span.since, span.until), files)
    return list(zip(files, holds, strict=True))


def _list_partitions(
    storage: Storage, table: Table, span: Span, composition: str | None = None
) -> list[tuple[Partition, list[StoredFile]]]:
    first, last = day_of(span.since), day_of(span.until)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [
        (partition, files)
        for partition, files in list_partitions(storage, table, days)
        if composition is None or partition.composition in (None, composition)
    ]


def _to_column(at: datetime) -> Column:
    since = at - datetime.fromtimestamp(0, UTC)
    return F.timestamp_micros(F.lit(since // timedelta(microseconds=1)))
