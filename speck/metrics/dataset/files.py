"""Files of the dataset: their names, their partitions, and files that appear together."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa

from speck.errors import ConflictError, InvalidError
from speck.metrics.dataset.schema import ALONE, Table
from speck.metrics.dataset.storage import UNFINISHED, Storage, StoredFile, hide
from speck.model.values import is_name

COMPACT = "compact"
PART = "part"

_JOURNAL = ".import-"
_OWNER = ".owner"

_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_COMPOSITION = "composition="


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """The rows of one day (UTC) and, for tables of jobs, one composition."""

    day: date
    composition: str | None = None

    def folder(self, table: Table) -> str:
        """The folder of its files."""
        folder = f"{table.name}/day={self.day.isoformat()}"
        return folder if self.composition is None else f"{folder}/{_COMPOSITION}{self.composition}"


def make_file_name(kind: str, first: datetime, suffix: str) -> str:
    """`<kind>-<ms>-<n>.parquet`; `suffix` (hex) makes it unique.

    Names sort by the time `first` of their first row.
    """
    return f"{kind}-{int(first.timestamp() * 1000):013d}-{suffix}.parquet"


class UnfinishedError(OSError):
    """All files are written, but not all have their names yet: `sweep` does the rest."""


class StagedFiles:
    """Files of which all appear or none, even if the process is killed.

    Files are added hidden; `publish` writes a journal with their names. Once the journal exists,
    `sweep` lets the rest appear after a kill; without it, it removes the files.
    """

    def __init__(self, storage: Storage):
        self._storage = storage
        self._paths: list[str] = []
        self._hidden: list[str] = []

    def add(self, path: str, rows: pa.Table) -> str:
        """Write the rows as the future `path`; returns its present path. Raises OSError."""
        self._hidden.append(hide(path))
        self._storage.stage(path, rows)
        self._paths.append(path)
        return hide(path)

    def publish(self) -> None:
        """Let all appear. Raises OSError if none do, and UnfinishedError if all are written but
        some have not appeared."""
        journal = f"{_JOURNAL}{secrets.token_hex(6)}"
        self._storage.put_text(journal, json.dumps(self._paths))
        self._hidden.clear()
        try:
            _finish(self._storage, journal)
        except OSError as error:
            raise UnfinishedError(*error.args) from error

    def discard(self) -> None:
        """Remove what was added and not published."""
        for path in self._hidden:
            self._storage.remove(path)


def _finish(storage: Storage, journal: str) -> None:
    paths: list[str] = json.loads(storage.read_text(journal))
    storage.map(lambda path: storage.move(hide(path), path), paths)
    storage.remove(journal)


def sweep(storage: Storage) -> int:
    """Finish journalled writes that a kill interrupted, and remove other hidden files and folders.

    Returns how many were removed. Raises OSError.
    """
    for name in storage.list_names(""):
        if name.startswith(_JOURNAL) and not name.endswith(UNFINISHED):
            _finish(storage, name)
    return storage.remove_leftovers()


def claim(storage: Storage, owner: str) -> None:
    """Note who writes here. Two services would remove each other's unfinished files.

    Raises ConflictError if another one does, and OSError.
    """
    if _OWNER not in storage.list_names(""):
        storage.put_text(_OWNER, owner)
    elif (other := storage.read_text(_OWNER).strip()) != owner:
        raise ConflictError(
            f"cannot keep metrics at {storage}: the service of installation {other} does; give each"
            f" service a folder of its own with SPECK_METRICS_URI, or remove"
            f" {storage.name_of(_OWNER)} if that service is gone"
        )


def list_days(storage: Storage, table: Table) -> list[date]:
    """The days that have a folder, oldest first."""
    days = (_parse_day(name) for name in storage.list_folders(table.name))
    return [day for day in days if day is not None]


def _parse_day(name: str) -> date | None:
    match = _DAY.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def list_partitions(
    storage: Storage, table: Table, days: Iterable[date] | None = None
) -> Iterator[tuple[Partition, list[StoredFile]]]:
    """The existing partitions, in the order of the days (all, oldest first), and their finished
    files, ordered by the time in their names."""
    for day in list_days(storage, table) if days is None else days:
        yield from sorted(_list_day(storage, table, day).items())


def files_of(storage: Storage, table: Table, partition: Partition) -> list[StoredFile]:
    """The finished files of a partition, ordered by the time in their names."""
    return _list_folder(storage, table, partition.folder(table)).get(partition, [])


def _list_day(storage: Storage, table: Table, day: date) -> dict[Partition, list[StoredFile]]:
    return _list_folder(storage, table, Partition(day).folder(table))


def _list_folder(storage: Storage, table: Table, folder: str) -> dict[Partition, list[StoredFile]]:
    partitions: dict[Partition, list[StoredFile]] = {}
    for file in storage.list_files(folder):
        if is_finished(file) and (partition := _parse_folder(file.folder, table)) is not None:
            partitions.setdefault(partition, []).append(file)
    for files in partitions.values():
        files.sort(key=lambda file: (file.name.partition("-")[2], file.name))
    return partitions


def is_finished(file: StoredFile) -> bool:
    """Whether it is a file with rows, complete and no longer being written."""
    return file.name.endswith(".parquet") and not file.name.startswith((".", "_"))


def _parse_folder(folder: str, table: Table) -> Partition | None:
    """The partition whose folder it is; None if it is no partition's."""
    levels = folder.split("/")[1:]
    day = _parse_day(levels[0]) if levels else None
    if day is None or len(levels) != len(table.partitions):
        return None
    if len(levels) == 1:
        return Partition(day)
    is_composition = levels[1].startswith(_COMPOSITION)
    return Partition(day, levels[1].removeprefix(_COMPOSITION)) if is_composition else None


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
