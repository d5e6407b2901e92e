"""The files of an archive: their names, and which of them count."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import pyarrow.parquet as pq

from speck.errors import NotFoundError
from speck.metrics.dataset.files import is_finished
from speck.metrics.dataset.opening import open_storage
from speck.metrics.dataset.storage import Storage, StoredFile

COMPACT = "compact-"
"""How the names of files begin that were joined of others."""
SOURCES = "speck.sources"
"""Metadata of such a file: the names of the others, which count no longer."""

STAGING = ".writing"
"""The folder in which each run of a job has one for the files that it is writing."""

_BATCH = re.compile(r"batch-([0-9a-f]+)-(\d+)-[0-9a-f]+-\d+\.parquet")
_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query, whose id is `writer`."""

    writer: str
    number: int


def open_archive(uri: str) -> Storage:
    """The archive at a URI (`file:`, `s3a:`, `hdfs:`) or in a folder. The lock of one elsewhere is
    in a folder of this machine. Raises InvalidError."""
    return open_storage(
        uri, Path(tempfile.gettempdir()) / f"speck-archive-{os.getuid()}", "archives"
    )


def parse_batch(name: str) -> Batch | None:
    """The batch that a file holds rows of; None if it was joined of several."""
    match = _BATCH.fullmatch(name)
    return Batch(match[1], int(match[2])) if match else None


def parse_day(folder: str) -> date | None:
    """The day of a folder of files; None if their records could not be read."""
    for level in folder.split("/"):
        if match := _DAY.fullmatch(level):
            try:
                return date.fromisoformat(match[1])
            except ValueError:
                return None
    return None


def list_tables(storage: Storage) -> list[str]:
    """The names of the tables. Raises NotFoundError if there are none."""
    tables = [name for name in storage.list_folders("") if not name.startswith((".", "_"))]
    if not tables:
        raise NotFoundError(
            f"cannot find an archive at {storage}: name the folder that is the --target of its jobs"
        )
    return tables


def list_by_folder(storage: Storage, table: str) -> Iterator[tuple[str, list[StoredFile]]]:
    """Each folder that has files of a table, and the complete ones, also those that no longer
    count, in the order of their names."""
    files = [file for file in storage.list_files(table) if is_finished(file)]
    files.sort(key=lambda file: (file.folder, file.name))
    for folder, in_folder in groupby(files, key=lambda file: file.folder):
        yield folder, list(in_folder)


def list_replaced(storage: Storage, files: list[StoredFile]) -> set[str]:
    """The names of files in one folder that count no longer: they were joined, and are about to be
    removed. Raises OSError, or pyarrow's ArrowException if a file is damaged."""
    if len(files) < 2:
        return set()
    joined = [file for file in files if file.name.startswith(COMPACT)]
    return set().union(*(_read_sources(storage, file) for file in joined))


def list_files(
    storage: Storage, table: str, first: date | None = None, last: date | None = None
) -> list[StoredFile]:
    """The files of a table that count, of all days or of those from `first` to `last`. With a first
    or last day, what could not be read is left out. Raises as `list_replaced`."""
    listed: list[StoredFile] = []
    for folder, files in list_by_folder(storage, table):
        day = parse_day(folder)
        is_wanted = day is not None and (first or day) <= day <= (last or day)
        if is_wanted or (first is None and last is None):
            replaced = list_replaced(storage, files)
            listed += [file for file in files if file.name not in replaced]
    return listed


@lru_cache(10_000)
def _read_sources(storage: Storage, file: StoredFile) -> frozenset[str]:
    with storage.open(file.path) as source:
        metadata = pq.read_metadata(source).metadata or {}
    return frozenset(json.loads(metadata.get(SOURCES.encode(), b"[]")))
