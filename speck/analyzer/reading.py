"""Reads the dataset into frames: a time range of a table, for one composition or all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer.contracts import contract_of
from speck.errors import NotFoundError
from speck.metrics.dataset import reading
from speck.metrics.dataset.reading import read_file
from speck.metrics.dataset.schema import TABLES, TASKS, Table

T = TypeVar("T")


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
    root: Path,
    table: Table,
    span: Span,
    composition: str | None = None,
    without: Collection[Path] = (),
) -> DataFrame:
    """Read the rows of `table` in the span; an empty frame if there are no files.

    A column that a file lacks (an older version wrote it) is null. Truncated files, which
    `find_damaged` lists, and the files `without` are skipped.
    """
    contract = contract_of(table)
    paths = [str(place) for place in _list_paths(root / table.name, span, composition, without)]
    if not paths:
        return spark.createDataFrame([], contract.ddl)
    frame = (
        spark.read.schema(contract.ddl)
        .option("basePath", str(root / table.name))
        .parquet(*paths)
        .where(F.col("at").between(_to_column(span.since), _to_column(span.until)))
    )
    return contract.check(frame, f"read {table.name}")


def find_newest(root: Path, composition: str | None = None) -> datetime:
    """Find the time of the newest sample of a task. Raises NotFoundError if there is none."""
    newest = reading.find_newest(root, TASKS, composition)
    if newest is not None:
        return newest
    of = f" of composition {composition!r}" if composition else ""
    raise NotFoundError(
        f"cannot analyse {root}: it holds no samples of tasks{of};"
        " let the service collect metrics for a while (SPECK_METRICS_S above 0), or import some"
    )


def count_bytes(root: Path, tables: Iterable[Table], span: Span) -> int:
    """Bytes of the files that may hold rows of the span."""
    return sum(
        file.stat().st_size
        for table in tables
        for folder in _list_folders(root / table.name, span, None)
        for file in _list_files(folder)
        if reading.may_hold(file, span.since, span.until)
    )


def retry_without_damaged(work: Callable[[Collection[Path]], T], root: Path, span: Span) -> T:
    """Call `work` with the files that it must skip, and return its result.

    At first there are none. If Spark fails, they are the files with damaged contents, which are
    found by reading all files.
    """
    try:
        return work(())
    except (PySparkException, Py4JJavaError):
        damaged_files = [
            file
            for table in TABLES.values()
            for folder in _list_folders(root / table.name, span, None)
            for file in _list_files(folder)
            if not _is_readable(file, table)
        ]
        if not damaged_files:
            raise
        return work(damaged_files)


def _is_readable(file: Path, table: Table) -> bool:
    try:
        read_file(file, table)
    except (OSError, pa.ArrowException):
        return False
    return True


def find_damaged(root: Path, table: Table, span: Span, composition: str | None = None) -> list[str]:
    """Find truncated files: they do not end as Parquet files do."""
    folders = _list_folders(root / table.name, span, composition)
    files = (file for folder in folders for file in _list_files(folder))
    return sorted(
        str(file.relative_to(root))
        for file in files
        if reading.may_hold(file, span.since, span.until) is None
    )


def _list_paths(
    root: Path, span: Span, composition: str | None, without: Collection[Path]
) -> list[Path]:
    """Folders to read, or single files of a folder that also has damaged ones or ones without rows
    of the span."""
    paths: list[Path] = []
    for folder in _list_folders(root, span, composition):
        files = _list_files(folder)
        chosen = [
            file
            for file in files
            if file not in without and reading.may_hold(file, span.since, span.until)
        ]
        paths += [folder] if files and len(chosen) == len(files) else chosen
    return paths


def _list_files(folder: Path) -> list[Path]:
    return list(folder.rglob("[!._]*.parquet"))


def _list_folders(root: Path, span: Span, composition: str | None) -> Iterator[Path]:
    day = span.since.astimezone(UTC).date()
    while day <= span.until.astimezone(UTC).date():
        folder = root / f"day={day:%Y-%m-%d}"
        if composition is not None and any(folder.glob("composition=*")):
            folder = folder / f"composition={composition}"
        if folder.is_dir():
            yield folder
        day += timedelta(days=1)


def _to_column(at: datetime) -> Column:
    since = at - datetime.fromtimestamp(0, UTC)
    return F.timestamp_micros(F.lit(since // timedelta(microseconds=1)))
