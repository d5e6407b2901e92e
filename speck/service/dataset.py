"""The metrics dataset as files that users export and import."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BufferedWriter
from pathlib import Path
from typing import Annotated, BinaryIO

from speck.clock import Clock, rfc3339
from speck.config import Config
from speck.errors import SpeckError, StoreFullError, TransientError
from speck.metrics.dataset.exchange import ImportResult, export, find_table
from speck.metrics.dataset.import_process import import_in_process
from speck.metrics.dataset.storage import Storage, hidden_name_of
from speck.model.shown import Shown
from speck.store.room import SparingFile

LOG = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Export:
    """A file that is ready: its bytes, how many rows it has, and which files of the dataset are
    damaged and not in it. It has no name any more, and is gone once it is closed."""

    content: BinaryIO
    size: int
    rows: int
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that was imported into a table. `since` and `until` (RFC 3339) are the times of its
    first and last row."""

    table: str
    rows: Annotated[int, Shown("rows in the file")]
    new: Annotated[int, Shown("rows that the dataset lacked")]
    since: str | None
    until: str | None
    warnings: tuple[str, ...]


class Dataset:
    """Use cases over the dataset in `storage`; `flush` writes what the sampler holds."""

    def __init__(self, config: Config, storage: Storage, clock: Clock, flush: Callable[[], None]):
        self._storage = storage
        self._days = config.metrics_days
        self._clock = clock
        self._flush = flush

    def export(
        self,
        table: str,
        form: str,
        since: datetime | None = None,
        until: datetime | None = None,
        composition: str | None = None,
    ) -> Export:
        """The rows of a table as one file of the format `form`.

        Raises InvalidError for an unknown table, StoreFullError, TransientError.
        """
        schema = find_table(table)
        self._flush()
        path = self._scratch("export")
        try:
            with self._open(path, "export metrics") as out:
                exported = export(self._storage, schema, out, form, since, until, composition)
            content = path.open("rb")
        except OSError as error:
            raise self._no_room(error, "export metrics") from error
        finally:
            path.unlink(missing_ok=True)  # an open file stays readable
        for damaged in exported.damaged:
            LOG.warning("%s", damaged)
        size = os.fstat(content.fileno()).st_size
        return Export(content, size, exported.rows, tuple(one.path for one in exported.damaged))

    def import_chunks(
        self, chunks: Iterable[bytes], name: str, form: str, table: str | None = None
    ) -> Imported:
        """Import a file that its user calls `name`; all of its rows or none. A process of its own
        reads it, whose memory is limited.

        Raises InvalidError with every fault, StoreFullError, TransientError.
        """
        schema = None if table is None else find_table(table)
        self._flush()
        path = self._scratch("upload")
        try:
            with self._open(path, f"import {name}") as out:
                for chunk in chunks:
                    out.write(chunk)
            imported = import_in_process(self._storage, path, name, form, schema)
        except OSError as error:
            raise self._no_room(error, f"import {name}") from error
        finally:
            path.unlink(missing_ok=True)
        return Imported(
            table=imported.table,
            rows=imported.rows,
            new=imported.new,
            since=rfc3339(imported.since) if imported.since else None,
            until=rfc3339(imported.until) if imported.until else None,
            warnings=tuple(self._warnings(imported)),
        )

    def _warnings(self, imported: ImportResult) -> list[str]:
        if imported.since is None or self._days <= 0:
            return []
        if imported.since >= self._clock.now() - timedelta(days=self._days):
            return []
        return [
            f"days that ended {self._days} days ago or earlier are dropped within minutes;"
            " SPECK_METRICS_DAYS=0 keeps all"
        ]

    def _open(self, path: Path, doing: str) -> BufferedWriter:
        return BufferedWriter(SparingFile(path, self._storage.local, doing))

    def _scratch(self, what: str) -> Path:
        self._storage.local.mkdir(parents=True, exist_ok=True)
        return self._storage.local / hidden_name_of(f"{what}-{self._clock.new_id()}")

    def _no_room(self, error: OSError, doing: str) -> SpeckError:
        kind = StoreFullError if error.errno in _NO_ROOM else TransientError
        return kind(
            f"cannot {doing}: {error.strerror or error} at {self._storage.local};"
            " free space on that disk, then try again"
        )
