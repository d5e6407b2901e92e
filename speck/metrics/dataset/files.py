"""Files of the dataset: their names, and how they are written atomically.

A file is written under a name that begins with `.` (Spark, DuckDB and pyarrow ignore such files),
synced, and renamed. A kill leaves only hidden files, which `sweep` removes at the next start.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import InvalidError
from speck.metrics.dataset.schema import ALONE, Table
from speck.model.values import is_name

ROW_GROUP = 128 * 1024
"""Rows per row group: few enough that reading a time range skips most of a large file."""

COMPACT = "compact"
PART = "part"

_JOURNAL = ".import-"

_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_COMPOSITION = "composition="


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """The rows of one day (UTC) and, for tables of jobs, one composition."""

    day: date
    composition: str | None = None

    def folder(self, root: Path, table: Table) -> Path:
        """The folder of its files."""
        folder = root / table.name / f"day={self.day.isoformat()}"
        return folder if self.composition is None else folder / (_COMPOSITION + self.composition)


class Disk:
    """All disk operations; tests make each of them fail."""

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        """Write a Parquet file of `rows` at `path`, and sync it. Raises OSError."""
        with path.open("wb") as out:
            with pq.ParquetWriter(
                out,
                rows.schema.remove_metadata(),
                compression="zstd",
                write_page_checksum=True,
                store_schema=False,
            ) as file:
                file.write_table(rows, ROW_GROUP)
                file.add_key_value_metadata(dict(metadata))
            out.flush()
            os.fsync(out.fileno())

    def write_text(self, path: Path, text: str) -> None:
        """Write a file of `text` at `path`, and sync it. Raises OSError."""
        with path.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())

    def make_folder(self, path: Path) -> None:
        """Create the folder `path` and its missing parents."""
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, path: Path, name: str) -> None:
        """Rename the file or folder `path` to `name` in its folder, and sync the folder."""
        path.rename(path.with_name(name))
        self.sync(path.parent)

    def remove(self, path: Path) -> None:
        """Remove the file `path` if it exists."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove the folder `path` and all in it."""
        shutil.rmtree(path)

    def sync(self, folder: Path) -> None:
        """Sync `folder`, so that its renames survive a loss of power."""
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def make_file_name(kind: str, first: datetime, suffix: str) -> str:
    """`<kind>-<ms>-<n>.parquet`; `suffix` (hex) makes it unique.

    Names sort by the time `first` of their first row.
    """
    return f"{kind}-{int(first.timestamp() * 1000):013d}-{suffix}.parquet"


def hidden_name_of(name: str) -> str:
    """The name of a file while it is being written."""
    return f".{name}.writing"


def put(folder: Path, name: str, rows: pa.Table, disk: Disk, **metadata: str) -> Path:
    """Write `rows` as `folder/name`, whole or not at all. Raises OSError."""
    disk.make_folder(folder)
    unfinished = folder / hidden_name_of(name)
    try:
        disk.write(unfinished, rows, metadata)
        disk.rename(unfinished, name)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    return folder / name


class UnfinishedError(OSError):
    """All files are written and synced, but not all are renamed yet: `sweep` does the rest."""


class StagedFiles:
    """Files of which all appear or none, even if the process is killed.

    Files are added hidden; `publish` writes a journal with their names. Once the journal exists,
    `sweep` finishes the renames after a kill; without it, it removes the files.
    """

    def __init__(self, root: Path, disk: Disk):
        self._root = root
        self._disk = disk
        self._names: list[str] = []
        self._written: list[Path] = []

    def add(self, folder: Path, name: str, rows: pa.Table) -> Path:
        """Write the rows as the future `folder/name`; returns its present path. Raises OSError."""
        self._disk.make_folder(folder)
        path = folder / hidden_name_of(name)
        self._written.append(path)
        self._disk.write(path, rows, {})
        self._names.append(str((folder / name).relative_to(self._root)))
        return path

    def publish(self) -> None:
        """Let all appear. Raises OSError if none do, and UnfinishedError if all are written but
        some not renamed."""
        journal = self._root / f"{_JOURNAL}{secrets.token_hex(6)}"
        unfinished = journal.with_name(hidden_name_of(journal.name))
        try:
            self._disk.write_text(unfinished, json.dumps(self._names))
            self._disk.rename(unfinished, journal.name)
        except OSError:
            journal.unlink(missing_ok=True)  # first: without it the others do not count
            unfinished.unlink(missing_ok=True)
            raise
        self._written.clear()
        try:
            _finish(self._root, journal, self._disk)
        except OSError as error:
            raise UnfinishedError(*error.args) from error

    def discard(self) -> None:
        """Remove what was added and not published."""
        for path in self._written:
            path.unlink(missing_ok=True)


def _finish(root: Path, journal: Path, disk: Disk) -> None:
    for name in json.loads(journal.read_text()):
        unfinished = (root / name).with_name(hidden_name_of(Path(name).name))
        if unfinished.exists():
            disk.rename(unfinished, Path(name).name)
    disk.remove(journal)


def sweep(root: Path) -> int:
    """Finish journalled writes that a kill interrupted, and remove other hidden files and folders.

    Returns how many were removed.
    """
    for journal in root.glob(f"{_JOURNAL}*"):
        if not journal.name.endswith(".writing"):
            _finish(root, journal, Disk())
    leftovers = [path for path in root.rglob(".*") if path.name.endswith((".writing", ".dropped"))]
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(leftovers)


def list_partitions(root: Path, table: Table) -> Iterator[Partition]:
    """The existing partitions, oldest first."""
    for folder in sorted((root / table.name).glob("day=*")):
        day = _parse_day(folder)
        if day is None:
            continue
        if table.partitions == ("day",):
            yield Partition(day)
            continue
        for below in sorted(folder.glob(_COMPOSITION + "*")):
            yield Partition(day, below.name.removeprefix(_COMPOSITION))


def _parse_day(folder: Path) -> date | None:
    match = _DAY.fullmatch(folder.name)
    try:
        return date.fromisoformat(match[1]) if match and folder.is_dir() else None
    except ValueError:
        return None


def files_of(root: Path, table: Table, partition: Partition) -> list[Path]:
    """The finished files of a partition, ordered by the time in their names."""
    paths = partition.folder(root, table).glob("*.parquet")
    return sorted(
        (path for path in paths if not path.name.startswith(".")),
        key=lambda path: (path.name.partition("-")[2], path.name),
    )


def day_of(at: datetime) -> date:
    """The day of a row, UTC."""
    return at.astimezone(UTC).date()


def check_composition(name: object, table: Table) -> str:
    """Return `name` if it can name a composition's folder. Raises InvalidError otherwise."""
    if isinstance(name, str) and (name == ALONE or is_name(name)):
        return name
    raise InvalidError(
        f"cannot take a row for {table.name}: composition is {name!r:.80}; give a composition's"
        f" name, or {ALONE} for jobs that were posted alone"
    )
