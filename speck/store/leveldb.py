"""The store: JSON records in LevelDB, written in atomic synced batches.

Only this module imports plyvel. One process at a time may open a store. A store carries the
version of the shapes of its records: a speck reads its own version, and refuses any other.

After a failed write the store refuses all further writes until it is opened again: LevelDB would
accept them, but append them behind a partial record, where no reader would ever find them.

A store holds a sentinel record: LevelDB silently creates an empty database if its CURRENT file is
missing, and an empty store would look as if nothing were deployed.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import plyvel

from speck.errors import (
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreHeldError,
    StoreWriteError,
)
from speck.model.values import JsonObject
from speck.store import wal

_BLOCK_BYTES = 16 * 1024
# LevelDB compresses each block on its own, and our records are similar: 1000 jobs take a quarter
# less space than with its default of 4 KiB. A read decompresses one block, in about 10 µs.

VERSION = 12
"""The version of the shapes of the records (`speck.store.record_types`): whoever changes one of
them raises it."""

RESERVE = 16 * 2**20
"""Free bytes (at most a twentieth of the disk) that are reserved for changes that are under way:
with less free space nothing new begins. To go on, LevelDB needs space for a log and a table of
4 MiB each."""

_SENTINEL = "meta/store"

_held: set[Path] = set()
"""The stores that this process has open. It must never open one of them with LevelDB again: while
refusing the second opening, LevelDB releases the file lock that excludes other processes."""
_held_lock = threading.Lock()


OnFailure = Callable[[StoreWriteError], None] | None


class Store:
    """An open store. Use `create` once and `open` from then on.

    Thread-safe; writes are serialised. `on_failure` is called once, when the store begins to refuse
    writes: the process should exit and restart.
    """

    def __init__(self, database: Any, path: Path, on_failure: OnFailure = None):
        self._on_failure = on_failure
        self._db = database
        self._path = path
        self._closed = False
        self._failure: StoreWriteError | None = None
        self._writing = threading.Lock()
        self._users = 0
        self._idle = threading.Condition()

    @classmethod
    def create(
        cls, path: Path, first: Mapping[str, JsonObject], on_failure: OnFailure = None
    ) -> Store:
        """Create a store at `path` that holds `first`. Raises StoreError if anything is there.

        It is created beside `path` and moved there when complete, so that a kill in the middle
        leaves no partial store.
        """
        if cls.exists(path):
            raise StoreError(
                f"cannot create a store at {path}: that folder is not empty; open the store that"
                " is there, or move it away first"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
            try:
                with closing(cls(_open(unfinished, create=True), unfinished)) as store:
                    store.write({**first, _SENTINEL: {"version": VERSION}})
                os.rename(unfinished, path)
                _sync_folder(path.parent)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        except OSError as error:
            raise StoreError(f"cannot create a store at {path}: {error}") from error
        return cls.open(path, on_failure)

    @classmethod
    def open(cls, path: Path, on_failure: OnFailure = None) -> Store:
        """Open the store at `path`. Raises StoreError if it is missing, in use, damaged, or of
        another version."""
        if not (path / "CURRENT").exists():
            raise StoreError(
                f"cannot open the store at {path}: no CURRENT file there;"
                " restore a backup with `speck restore`, or name an empty folder to begin anew"
            )
        _check_room(path)
        store = cls(_open(path, create=False), path, on_failure)
        try:
            store._check_all()
            store._check_version()
        except BaseException:
            store.close()
            raise
        return store

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether there is a store at `path`, even a partial one: any file there counts, so that a
        damaged store is never taken for a missing one."""
        return path.is_dir() and any(path.iterdir())

    def get(self, key: str) -> JsonObject | None:
        """The record at `key`, or None."""
        value = self.get_bytes(key)
        record: JsonObject | None = None if value is None else orjson.loads(value)
        return record

    def get_bytes(self, key: str) -> bytes | None:
        """The record at `key` in JSON, or None."""
        value: bytes | None = self._read(lambda: self._db.get(key.encode(), verify_checksums=True))
        return value

    def scan(self, prefix: str, *, after: str = "") -> Iterator[tuple[str, JsonObject]]:
        """(key, record) for every key with `prefix`, in key order, from one snapshot.

        `after`: start after this full key.
        """
        for key, value in self.scan_bytes(prefix, after=after):
            yield key, orjson.loads(value)

    def scan_bytes(self, prefix: str, *, after: str = "") -> Iterator[tuple[str, bytes]]:
        """Like `scan`, with the records in JSON."""
        start = prefix.encode()
        options: dict[str, Any] = {"start": start, "stop": _successor(start), **_CHECKED}
        if after:
            options |= {"start": after.encode(), "include_start": False}
        rows = self._read(lambda: list(self._db.iterator(**options)))
        for key, value in rows:
            yield key.decode(), value

    def last(self, prefix: str) -> tuple[str, JsonObject] | None:
        """The (key, record) of the greatest key with `prefix`, or None."""
        start = prefix.encode()
        options: dict[str, Any] = {"start": start, "stop": _successor(start), **_CHECKED}
        row = self._read(lambda: next(self._db.iterator(reverse=True, **options), None))
        if row is not None:
            return row[0].decode(), orjson.loads(row[1])
        record = self.get(
            prefix
        )  # plyvel misses a key that equals the start, if it is the only one
        return None if record is None else (prefix, record)

    def write(self, records: Mapping[str, JsonObject | None]) -> None:
        """Write all `records` (None: delete) in one atomic batch, synced before it returns.

        Raises StoreWriteError if the disk refuses the write, and for all further writes.
        """
        rows = {
            key.encode(): None if record is None else orjson.dumps(record)
            for key, record in records.items()
        }
        with self._using("write to"), self._writing:
            if self._failure is not None:
                raise self._failure
            try:
                self._put(rows)
            except plyvel.Error as error:
                self._failure = _write_error(self._path, error)
                if self._on_failure is not None:
                    self._on_failure(self._failure)
                raise self._failure from error

    def _put(self, rows: Mapping[bytes, bytes | None]) -> None:
        with self._db.write_batch(transaction=True, sync=True) as batch:
            for key, value in rows.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)

    def check_writable(self) -> None:
        """Raise StoreWriteError if a write has failed, StoreFullError if there is too little free
        space to begin anything."""
        if self._failure is not None:
            raise self._failure
        _check_room(self._path)

    @contextmanager
    def snapshot(self) -> Iterator[Callable[[str], Iterator[tuple[str, JsonObject]]]]:
        """The store at this moment: a function like `scan`, which gives the records as they are
        stored, one by one."""
        # in use until it is released: LevelDB would crash if it were closed during that
        with self._using("read"), self._db.snapshot() as snapshot:

            def scan(prefix: str) -> Iterator[tuple[str, JsonObject]]:
                start = prefix.encode()
                options = {"start": start, "stop": _successor(start), **_CHECKED}
                rows = self._read(lambda: snapshot.iterator(**options))
                while (row := self._read(lambda: next(rows, None))) is not None:
                    yield row[0].decode(), orjson.loads(row[1])

            yield scan

    def compact(self) -> None:
        """Compact the database on disk."""
        with self._using("compact"):
            self._db.compact_range()

    def close(self) -> None:
        """Close the store once all calls in progress have returned; does nothing if it is closed
        already. LevelDB would crash the process if it were closed during a read."""
        with self._idle:
            if self._closed:
                return
            self._closed = True
            self._idle.wait_for(lambda: self._users == 0)
        self._db.close()
        _release(self._path)

    def _read(self, action: Callable[[], Any]) -> Any:
        with self._using("read"):
            return action()

    @contextmanager
    def _using(self, what: str) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise StoreClosedError(f"cannot {what} the store at {self._path}: it is closed")
            self._users += 1
        try:
            yield
        except (plyvel.Error, RuntimeError) as error:
            raise StoreError(
                f"cannot {what} the store at {self._path}: {_message_of(error)}"
            ) from error
        finally:
            with self._idle:
                self._users -= 1
                if self._closed:
                    self._idle.notify_all()

    def _check_all(self) -> None:
        """Read everything once, to detect damage now rather than when a record is needed."""
        try:
            self._read(lambda: deque(self._db.iterator(include_value=False, **_CHECKED), maxlen=0))
        except StoreError as error:
            raise StoreError(f"{error}; restore a backup with `speck restore`") from error

    def _check_version(self) -> None:
        sentinel = self.get(_SENTINEL)
        if sentinel is None:
            raise StoreError(
                f"cannot use the store at {self._path}: its first record is missing;"
                " restore a backup with `speck restore`"
            )
        fault = find_version_fault(sentinel["version"])
        if fault is not None:
            raise StoreError(f"cannot use the store at {self._path}: {fault}")


def find_version_fault(version: int) -> str | None:
    """Why this speck reads no store, or backup, of a version, and what to do; None if it does."""
    if version > VERSION:
        return f"it has version {version}, this speck knows {VERSION}; use a newer speck"
    if version < VERSION:
        return (
            f"it has version {version}, from before the first release, which this speck cannot"
            " read; use the speck that wrote it, or start with another SPECK_HOME"
        )
    return None


def _open(path: Path, *, create: bool) -> Any:
    message = f"cannot open the store at {path}: another speck holds it; stop that one first"
    with _held_lock:
        if path.resolve() in _held:
            raise StoreHeldError(message)
        _held.add(path.resolve())
    try:
        if not create:
            _check_logs(path)
        return plyvel.DB(
            str(path),
            create_if_missing=create,
            error_if_exists=create,
            paranoid_checks=True,
            block_size=_BLOCK_BYTES,
        )
    except plyvel.Error as error:
        _release(path)
        if f"lock {path}" in str(error):
            raise StoreHeldError(message) from error
        if any(words in _message_of(error) for words in (*_NO_ROOM, *_BAD_DISK)):
            raise _write_error(path, error) from error
        raise StoreError(
            f"cannot open the store at {path}: {_message_of(error)}; restore a backup with"
            " `speck restore`"
        ) from error
    except BaseException:
        _release(path)
        raise


def _release(path: Path) -> None:
    with _held_lock:
        _held.discard(path.resolve())


def _check_logs(path: Path) -> None:
    """Raise StoreError if LevelDB would drop records because the length of one is damaged."""
    for file in sorted([*path.glob("*.log"), *path.glob("MANIFEST-*")]):
        try:
            at = wal.find_damage(file)
        except FileNotFoundError:  # the process that holds the store has just replaced it
            continue
        if at is not None:
            raise StoreError(
                f"cannot open the store at {path}: Corruption: the record at {at} of"
                f" {file.name} has another length; restore a backup with `speck restore`"
            )


def measure_room(path: Path) -> tuple[int, int]:
    """The free bytes on the disk of `path`, and how many of them are reserved."""
    disk = shutil.disk_usage(path)
    if not disk.total:  # a tmpfs without a limit, and some network file systems, tell no size
        return sys.maxsize, 0
    return disk.free, min(RESERVE, disk.total // 20)


def _check_room(path: Path) -> None:
    """Raise StoreFullError if the disk of `path` has less free space than is reserved."""
    free, minimum = measure_room(path)
    if free < minimum:
        raise StoreFullError(
            f"cannot write to the store at {path}: {free} bytes are free on its disk;"
            f" free at least {minimum} bytes, then speck goes on by itself"
        )


def _write_error(path: Path, error: plyvel.Error) -> StoreWriteError:
    message = _message_of(error)
    if any(words in message for words in _NO_ROOM):
        return StoreFullError(
            f"cannot write to the store at {path}: {message};"
            " free space on that disk, then speck goes on by itself"
        )
    return StoreWriteError(
        f"cannot write to the store at {path}: {message}; check that disk, then start speck again"
    )


def _message_of(error: plyvel.Error) -> str:
    """LevelDB's own message, which plyvel passes on as bytes."""
    message = error.args[0] if error.args else error
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)


_NO_ROOM = (os.strerror(errno.ENOSPC), os.strerror(errno.EFBIG), os.strerror(errno.EDQUOT))
_BAD_DISK = (os.strerror(errno.EIO), os.strerror(errno.EROFS))


def _sync_folder(folder: Path) -> None:
    """Make a rename within `folder` durable."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _successor(prefix: bytes) -> bytes | None:
    """The least key above all keys with `prefix`; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


_CHECKED = {"verify_checksums": True}
