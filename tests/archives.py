"""Archives without Spark: what a job does with the files of a batch, and kills while it does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from speck.archive.files import list_files
from speck.metrics.dataset.local import Disk, LocalStorage
from speck.metrics.dataset.storage import Storage
from tests.python_jobs import ROOT

sys.path.append(str(ROOT / "edge_jobs/pyspark"))

from speck_spark.archive import STAGING, publish  # it is not installed
from speck_spark.places import LocalPlace

T = TypeVar("T")
Folders = Mapping[str, Iterable[int]]
"""Rows, each a number, by the folder `day=.../site=...` that they belong in."""


class KilledError(Exception):
    """No OSError: nothing tidies up after a kill."""


class Kills:
    """Ends what is going on at one of its effects on the disk: before that, or after it."""

    def __init__(self) -> None:
        self.left: float = float("inf")
        self.count = 0

    def at(self, moment: int | None) -> None:
        """The next kill comes after so many half effects; None: none comes."""
        self.left = float("inf") if moment is None else moment

    def around(self, effect: Callable[[], T]) -> T:
        self._tick()
        result = effect()
        self._tick()
        return result

    def _tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.count += 1
            raise KilledError


class MortalPlace(LocalPlace):
    def __init__(self, root: Path, kills: Kills) -> None:
        super().__init__(root)
        self._kills = kills

    def _rename(self, source: Path, target: Path) -> None:
        self._kills.around(lambda: super(MortalPlace, self)._rename(source, target))

    def _remove(self, folder: Path) -> None:
        self._kills.around(lambda: super(MortalPlace, self)._remove(folder))


class MortalDisk(Disk):
    def __init__(self, kills: Kills) -> None:
        self._kills = kills

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        self._kills.around(lambda: path.write_bytes(b"PAR1, and then"))
        self._kills.around(lambda: super(MortalDisk, self).write(path, rows, metadata))

    def rename(self, path: Path, to: Path) -> None:
        self._kills.around(lambda: super(MortalDisk, self).rename(path, to))

    def remove(self, path: Path) -> None:
        self._kills.around(lambda: super(MortalDisk, self).remove(path))


def store_batch(place: LocalPlace, root: Path, writer: str, number: int, rows: Folders) -> None:
    """What `Archive.store` does, with files that Spark did not write."""
    staging = root / STAGING / writer
    place.remove(f"{STAGING}/{writer}")  # mode overwrite
    for folder, values in rows.items():
        (staging / folder).mkdir(parents=True)
        table = pa.table({"row": list(values)})
        pq.write_table(table, staging / folder / f"part-00000-{number}.c000.zstd.parquet")
    (staging / "_SUCCESS").parent.mkdir(parents=True, exist_ok=True)
    (staging / "_SUCCESS").touch()
    digest = f"{abs(hash(str(rows))) % (1 << 64):016x}"
    publish(place, f"{STAGING}/{writer}", "detections", f"batch-{writer}-{number:09d}-{digest}")


def read_rows(storage: LocalStorage, table: str = "detections") -> list[int]:
    """The rows of the files that count, in order."""
    return sorted(read_column(storage, "row", table))


def read_column(storage: Storage, column: str, table: str = "detections") -> list[int]:
    """A column of the files that count."""
    values: list[int] = []
    for file in list_files(storage, table):
        with storage.open(file.path) as source:
            values += pq.ParquetFile(source).read([column]).column(column).to_pylist()
    return values
