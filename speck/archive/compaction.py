"""Joins the small files of past days.

A kill at any instant neither loses nor repeats a row: a joined file says in itself which ones it
replaces, and appears as a whole. From then on those count no longer (`files.list_files`); the next
run removes what is left of them.

The last files of each writer stay: a batch that is run again after a failure looks for its names.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from speck.archive.files import (
    COMPACT,
    SOURCES,
    STAGING,
    list_by_folder,
    list_replaced,
    list_tables,
    parse_batch,
    parse_day,
)
from speck.errors import TransientError
from speck.metrics.dataset.reading import Damaged, describe_error, hold_alone
from speck.metrics.dataset.storage import Storage, StoredFile

TARGET_BYTES = 32 * 2**20
"""Maximum size of a joined file; larger files stay as they are."""

REPEATABLE = 4
"""So many of its last batches a query may run again: what it has taken of its link goes back no
further (`Spool` in `edge_jobs/spark-connector`)."""


@dataclass(slots=True)
class CompactionReport:
    """What one run did. `busy`: nothing, since the archive is being read or compacted."""

    busy: bool = False
    joined: int = 0
    written: int = 0
    damaged: list[Damaged] = field(default_factory=list)


def compact(storage: Storage, today: date) -> CompactionReport:
    """Join the files of days before `today`, and of records that could not be read. Raises
    NotFoundError if there is no archive, and TransientError if the storage fails: the next run does
    the rest."""
    report = CompactionReport()
    try:
        tables = list_tables(storage)
        with hold_alone(storage) as is_free:
            if not is_free:
                report.busy = True
                return report
            for table in tables:
                _compact_table(storage, table, today, report)
            _remove_abandoned(storage, today)
    except OSError as error:
        raise TransientError(
            f"cannot compact the archive {storage}: {describe_error(error)}; {storage.advice} and"
            " run it again: nothing is lost"
        ) from error
    return report


def _remove_abandoned(storage: Storage, today: date) -> None:
    """What runs of jobs were writing when they were killed; whatever was written since yesterday
    may still be under way."""
    since = datetime.combine(today - timedelta(days=1), time(), UTC)
    storage.finish_removals(STAGING)
    for name in storage.list_folders(STAGING):
        files = storage.list_files(f"{STAGING}/{name}")
        if files and max(file.version for file in files) < since.timestamp() * 1e9:
            storage.remove_folder(f"{STAGING}/{name}")


def _compact_table(storage: Storage, table: str, today: date, report: CompactionReport) -> None:
    folders = list(list_by_folder(storage, table))
    newest: dict[str, int] = defaultdict(int)
    for _, files in folders:
        for file in files:
            if (batch := parse_batch(file.name)) is not None:
                newest[batch.writer] = max(newest[batch.writer], batch.number)

    def may_come_again(file: StoredFile) -> bool:
        batch = parse_batch(file.name)
        return batch is not None and batch.number > newest[batch.writer] - REPEATABLE

    for folder, files in folders:
        try:
            replaced = list_replaced(storage, files)
        except pa.ArrowException as error:  # a joined file: what it replaces is not known
            report.damaged.append(Damaged(storage.name_of(folder), describe_error(error)))
            continue
        storage.map(storage.remove, [file.path for file in files if file.name in replaced])
        day = parse_day(folder)
        if day is None or day < today:
            left = [file for file in files if file.name not in replaced]
            for group in _list_groups(file for file in left if not may_come_again(file)):
                _join(storage, group, report)


def _list_groups(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    """Groups of two or more files that fit into one."""
    group: list[StoredFile] = []
    size = 0
    for file in files:
        if file.size * 2 > TARGET_BYTES:
            continue
        if size + file.size > TARGET_BYTES:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if len(group) > 1:
        yield group


def _join(storage: Storage, group: list[StoredFile], report: CompactionReport) -> None:
    tables, sources = [], []
    for file in group:
        try:
            with storage.open(file.path) as source:
                tables.append(pq.ParquetFile(source).read())
            sources.append(file)
        except pa.ArrowException as error:
            report.damaged.append(Damaged(storage.name_of(file.path), describe_error(error)))
    if len(sources) < 2:
        return
    try:
        # a newer version of the job may have written further columns
        rows = pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:  # or the same ones of other types
        report.damaged.append(Damaged(storage.name_of(group[0].folder), describe_error(error)))
        return
    names = json.dumps([file.name for file in sources])
    digest = hashlib.sha256(names.encode()).hexdigest()[:16]
    storage.put(f"{group[0].folder}/{COMPACT}{digest}.parquet", rows, {SOURCES: names})
    storage.map(storage.remove, [file.path for file in sources])
    report.joined += len(sources)
    report.written += 1
