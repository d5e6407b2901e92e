"""Columns of samples, and the files they go to."""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from speck.metrics.dataset.files import PART, Partition, make_file_name
from speck.metrics.dataset.local import Disk, LocalStorage
from speck.metrics.dataset.schema import Table

_CHUNK_US = 7_200_000_000


class RowFiles:
    """Writes rows below `root`, one file for each call, composition and two hours, as compaction
    leaves them during the day; counts them."""

    def __init__(self, root: Path, start: datetime, rows: Counter[str]) -> None:
        self.storage = LocalStorage(root, _QuickDisk())
        self.start_us = int(start.timestamp() * 1_000_000)
        self.rows = rows
        self.files = 0

    def __call__(
        self,
        table: Table,
        at: np.ndarray,
        columns: dict[str, Any],
        composition: str | None = None,
    ) -> None:
        """One file for each two hours."""
        if not len(at):
            return
        times = self.start_us + np.int64(at * 1_000_000)
        arrays = [pa.array(times, pa.timestamp("us", tz="UTC"))]
        for column in table.schema.names[1:]:
            kind = table.schema.field(column).type
            values = columns.get(column)
            if values is None:
                arrays.append(pa.nulls(len(times), kind))
            else:
                arrays.append(_typed(values, kind))
        rows = pa.table(dict(zip(table.schema.names, arrays, strict=True)))
        chunks = times // _CHUNK_US
        for chunk in np.unique(chunks):
            ours = rows.filter(pa.array(chunks == chunk))
            first = datetime(1970, 1, 1, tzinfo=UTC) + int(chunk) * timedelta(hours=2)
            folder = Partition(first.date(), composition).folder(table)
            self.files += 1
            name = make_file_name(PART, first, f"{self.files:012x}")
            self.storage.put(f"{folder}/{name}", ours, {})
            self.rows[table.name] += ours.num_rows


class _QuickDisk(Disk):
    """Does not sync: a dataset from a seed can be generated again."""

    def sync(self, folder: Path) -> None:
        pass


def _typed(values: Any, kind: pa.DataType) -> Any:
    """Of the table's type, also where all of them are null; texts that repeat stay coded."""
    array = pa.array(values) if plain(values) else values
    return array if pa.types.is_dictionary(array.type) else array.cast(kind)


def plain(values: object) -> bool:
    return not isinstance(values, (pa.ChunkedArray, pa.DictionaryArray))


def same(text: str, count: int) -> pa.DictionaryArray:
    return pick([text], np.zeros(count, np.int32))


def pick(texts: list[str], which: np.ndarray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(texts))


def events(rng: np.random.Generator, count: int, expected: float) -> np.ndarray:
    """The polls before which something happened, never the first."""
    mask = np.zeros(count, bool)
    if count > 1:
        mask[rng.integers(1, count, rng.poisson(expected))] = True
    return mask


def since(total: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """`total` since its segment began, what came with that beginning left out."""
    begins = np.flatnonzero(np.diff(segment, prepend=segment[0] - 1))
    return total - np.repeat(total[begins], np.diff(np.append(begins, len(segment))))


def total(each: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """The counter that `each` interval adds to, from 0 in each segment."""
    summed = np.cumsum(each)
    begins = np.flatnonzero(np.diff(segment, prepend=segment[0] - 1))
    before = summed[begins] - each[begins]
    return summed - np.repeat(before, np.diff(np.append(begins, len(segment))))


def joined(
    parts: list[tuple[np.ndarray, dict[str, Any]]],
) -> tuple[np.ndarray, dict[str, Any]]:
    """The rows of several ends, subtasks or jobs as one."""
    at = np.concatenate([times for times, _ in parts])
    names = {name for _, columns in parts for name in columns}
    whole: dict[str, Any] = {}
    for name in names:
        chunks = []
        kinds = [pa.array(c[name]).type for _, c in parts if c.get(name) is not None]
        kind = kinds[0] if kinds else pa.null()
        for times, columns in parts:
            values = columns.get(name)
            chunks.append(pa.nulls(len(times), kind) if values is None else pa.array(values))
        whole[name] = pa.chunked_array(chunks).unify_dictionaries()
    return at, whole


def incarnation_of(job: str, attempt: int) -> str:
    return hashlib.sha256(f"{job}/{attempt}".encode()).hexdigest()[:32]


def vertex_of(job: str, number: int) -> str:
    return hashlib.sha256(f"{job}#{number}".encode()).hexdigest()[:32]
