"""Where a dataset lies: a folder of this machine (`local.py`), or an object store or HDFS
(`remote.py`). Paths in a dataset are relative, their parts joined by `/`.

Whatever the place, a file appears whole or not at all, and never changes afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

T = TypeVar("T")
R = TypeVar("R")

ROW_GROUP = 128 * 1024
"""Rows per row group: few enough that reading a time range skips most of a large file."""

UNFINISHED = ".writing"
"""How the names of files end that are no part of the dataset yet, or never will be."""
DROPPED = ".dropped"
"""How the names of folders end, or of what marks them, that are being removed."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a dataset, as a listing shows it; `version` is when it was written, in ns."""

    path: str
    size: int
    version: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


def hidden_name_of(name: str) -> str:
    """The name of a file while it is being written; Spark, DuckDB and pyarrow ignore it."""
    return f".{name}{UNFINISHED}"


def hide(path: str) -> str:
    """The path of a file while it is being written."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{hidden_name_of(name)}"


class Storage(ABC):
    """A dataset's files. All methods raise OSError, or pyarrow's ArrowException, if they fail.

    `uri` is the dataset as Spark names it. `local` is a folder of this machine: it has the lock
    between readers and maintenance, and files that are uploaded or downloaded.
    """

    advice = "check the disk"
    """What to do when it fails."""

    is_local = False

    def __init__(self, uri: str, local: Path) -> None:
        self.uri = uri
        self.local = local

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and self.uri == other.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __str__(self) -> str:
        return self.uri

    def uri_of(self, path: str) -> str:
        """A file or folder as Spark names it."""
        return f"{self.uri}/{path}"

    def name_of(self, path: str) -> str:
        """A file or folder, as messages name it."""
        return self.uri_of(path)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The results of `work`, which mostly waits for the storage, on all items."""
        return [work(item) for item in items]

    @abstractmethod
    def list_folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, in order; none if it does not exist."""

    @abstractmethod
    def list_names(self, folder: str) -> list[str]:
        """The names of the files in a folder itself; none if it does not exist."""

    @abstractmethod
    def list_files(self, folder: str) -> list[StoredFile]:
        """All files below a folder, also hidden ones; none if it does not exist."""

    @abstractmethod
    def make_folder(self, folder: str) -> None:
        """Create a folder and its missing parents."""

    @abstractmethod
    def open(self, path: str) -> pa.NativeFile:
        """A file, for reading at any place."""

    @abstractmethod
    def put(self, path: str, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        """Write a Parquet file, whole or not at all."""

    @abstractmethod
    def put_text(self, path: str, text: str) -> None:
        """Write a text file, whole or not at all."""

    @abstractmethod
    def stage(self, path: str, rows: pa.Table) -> None:
        """Write a Parquet file under its hidden name."""

    @abstractmethod
    def move(self, path: str, to: str) -> None:
        """Let a complete file appear under another name, replacing what is there; nothing if there
        is no such file."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Remove a folder and all in it. From a day's folder on, no reader finds it by half: it is
        hidden first."""

    @abstractmethod
    def finish_removals(self, folder: str) -> None:
        """Go on removing folders in a folder, whose removal was interrupted."""

    @abstractmethod
    def remove_leftovers(self) -> int:
        """Remove files that were never finished, and folders that are partly removed. Returns how
        many."""

    def read_text(self, path: str) -> str:
        """The contents of a text file."""
        with self.open(path) as file:
            text: bytes = file.read()
        return text.decode()


def write_parquet(out: Any, rows: pa.Table, metadata: Mapping[str, str]) -> None:
    """Write rows as all files of a dataset are: compressed, each page with a checksum."""
    with pq.ParquetWriter(
        out,
        rows.schema.remove_metadata(),
        compression="zstd",
        write_page_checksum=True,
        store_schema=False,
    ) as file:
        file.write_table(rows, ROW_GROUP)
        file.add_key_value_metadata(dict(metadata))
