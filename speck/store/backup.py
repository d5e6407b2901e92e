"""Backups: a gzip stream of JSON lines.

The first line says when and of which store the backup was taken, and which changes were under way.
One line for each record follows, with a checksum of its own, so that a fault can be named. The last
line holds the number of records of each table and a checksum over all lines before it.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from speck.clock import rfc3339
from speck.errors import StoreError, StoreFullError
from speck.model.change import ChangeState
from speck.model.values import JsonObject
from speck.spec.json_size import has_more_values
from speck.store.codec import RecordError, from_json
from speck.store.generations import begin_generation
from speck.store.leveldb import VERSION, Store, find_version_fault, measure_room
from speck.store.record_types import type_at
from speck.store.tables import AUDIT, CHANGES, INSTALLATION

_KIND = "speck-backup"
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 64 * 1024
_LONGEST_LINE = 64 * 2**20
_MOST_VALUES = 4_000_000
"""Of a line: a change of ten thousand jobs has some 400 000."""
_LONGEST_HEADER = 2**20
_UNDER_WAY = ("id", "composition", "job_name", "cause", "state")


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says of itself (`header`), and its records by key, as they are stored."""

    header: JsonObject
    records: dict[str, JsonObject]

    @property
    def under_way(self) -> list[JsonObject]:
        """The changes that were under way when it was taken."""
        changes: list[JsonObject] = self.header.get("under_way", [])
        return changes

    @property
    def tables(self) -> Counter[str]:
        """The number of records of each table."""
        return Counter(map(_table_of, self.records))


# -- writing ------------------------------------------------------------------------------


def write_backup(store: Store, now: datetime) -> Iterator[bytes]:
    """The pieces of a backup of the whole store. Changes may go on meanwhile: what is read is the
    store at one moment."""
    packer = zlib.compressobj(wbits=_GZIP)
    digest = hashlib.sha256()
    tables: Counter[str] = Counter()
    with store.snapshot() as scan:
        header = _line(_describe(scan(INSTALLATION), scan(CHANGES), now))
        digest.update(header)
        yield packer.compress(header)
        for key, record in scan(""):
            if key == AUDIT:
                continue
            tables[_table_of(key)] += 1
            line = _line({"key": key, "record": record, "crc": _checksum(key, record)})
            digest.update(line)
            yield packer.compress(line)
    tail = _line({"tables": dict(sorted(tables.items())), "sha256": digest.hexdigest()})
    yield packer.compress(tail) + packer.flush()


def _describe(
    installation: Iterator[tuple[str, JsonObject]],
    changes: Iterator[tuple[str, JsonObject]],
    now: datetime,
) -> JsonObject:
    """The first line of a backup."""
    _, own = next(installation, ("", {}))
    return {
        "kind": _KIND,
        "version": VERSION,
        "at": rfc3339(now),
        "installation": own.get("uuid"),
        "generation": own.get("generation"),
        "under_way": [
            {name: head.get(name) for name in _UNDER_WAY}
            for _, head in changes
            if not ChangeState(head["state"]).over
        ],
    }


class HeaderReader:
    """Finds the first line of a backup in its pieces while they pass by."""

    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=_GZIP)
        self._text = b""
        self.header: JsonObject = {}

    def add(self, piece: bytes) -> None:
        """Look at the next piece. What cannot be read is ignored: `read_backup` reports it."""
        if self.header or len(self._text) >= _LONGEST_HEADER:
            return
        with suppress(zlib.error, ValueError, RecursionError):
            self._text += self._unpacker.decompress(piece, _LONGEST_HEADER)
            head, line_feed, _ = self._text.partition(b"\n")
            if line_feed:
                self.header = json.loads(head)


# -- reading ------------------------------------------------------------------------------


def restore_backup(path: Path, file: Path, now: datetime) -> Backup:
    """Create the store of a new generation from a backup, which is returned as it was.

    Raises StoreError if the file is damaged or incomplete, or if anything is at `path`; nothing is
    created then.
    """
    backup = read_backup(file)
    records = backup.records.copy()
    if INSTALLATION not in records:
        raise StoreError(f"cannot restore {file}: the record {INSTALLATION} is missing")
    begin_generation(records, now)
    _refuse_without_room(path, records)
    Store.create(path, records).close()
    return backup


def _refuse_without_room(path: Path, records: Mapping[str, JsonObject]) -> None:
    """Raise StoreFullError if the disk of `path` cannot hold these records: LevelDB writes them to
    its log first, and then once more."""
    size = 2 * sum(len(_line(record)) for record in records.values())
    folder = next(each for each in path.absolute().parents if each.exists())
    free, reserve = measure_room(folder)
    if free - size < reserve:
        raise StoreFullError(
            f"cannot create a store at {path}: it needs {size} bytes, and {free} are free on its"
            f" disk, of which speck keeps {reserve}; free space there, or name another --home;"
            " nothing was written"
        )


def read_backup(file: Path) -> Backup:
    """Read all of a backup. Raises StoreError with the place of the first fault."""
    return _Reader(file).read()


class _Reader:
    """Reads a backup once, and knows how far it has got."""

    def __init__(self, file: Path):
        self._file = file
        self._digest = hashlib.sha256()
        self._number = 0
        self._newest: str | None = None

    def read(self) -> Backup:
        """The whole backup."""
        lines = self._read_lines()
        backup = Backup(self._read_header(next(lines, b"")), {})
        for line in lines:
            content = self._parse(line)
            if "sha256" in content:
                self._check_end(content, backup, lines)
                return backup
            key, record = self._read_record(content)
            self._check(key, record)
            backup.records[key] = record
            self._newest = key
            self._digest.update(line)
        raise self._fault("the end is missing")

    def _read_header(self, line: bytes) -> JsonObject:
        header = self._parse(line)
        if header.get("kind") != _KIND:
            raise StoreError(
                f"cannot restore {self._file}: it is no speck backup, or its beginning is damaged"
            )
        version = header.get("version")
        if not isinstance(version, int):
            raise self._fault("the first line holds no version")
        fault = find_version_fault(version)
        if fault is not None:
            raise StoreError(f"cannot restore {self._file}: {fault}")
        under_way = header.get("under_way", [])
        if not isinstance(under_way, list) or not all(isinstance(each, dict) for each in under_way):
            raise self._fault("the first line holds no list of changes")
        self._digest.update(line)
        return header

    def _read_record(self, row: JsonObject) -> tuple[str, JsonObject]:
        key, record = row.get("key"), row.get("record")
        if not isinstance(key, str) or not isinstance(record, dict):
            raise self._fault("it is no record")
        if row.get("crc") != _checksum(key, record):
            raise self._fault(f"the checksum of the record {key} is wrong")
        return key, record

    def _check(self, key: str, record: JsonObject) -> None:
        """Read a record as the service will, which ignores those of no table."""
        of = type_at(key)
        try:
            if of is not None:
                from_json(record, of)
        except RecordError as error:
            raise self._fault(f"the record {key} cannot be read: {error}") from error

    def _check_end(self, tail: JsonObject, backup: Backup, lines: Iterator[bytes]) -> None:
        tables = tail.get("tables")
        if tables != dict(backup.tables):
            raise self._fault(f"the tables hold {dict(backup.tables)} records, not {tables}")
        if tail["sha256"] != self._digest.hexdigest():
            raise self._fault("the checksum over all lines is wrong")
        if next(lines, None) is not None:
            raise self._fault("there is something after the end")

    def _read_lines(self) -> Iterator[bytes]:
        """The lines, each with its line feed."""
        begun: list[bytes] = []  # the pieces of a line without an end yet: joined once
        size = 0
        for text in self._unpack():
            first, *lines = text.split(b"\n")
            begun.append(first)
            size += len(first)
            for next_line in lines:
                self._number += 1
                yield b"".join((*begun, b"\n"))
                begun, size = [next_line], len(next_line)
            if size > _LONGEST_LINE:
                raise self._fault("a line is too long")
        if size:
            raise self._fault("the end is missing")

    def _unpack(self) -> Iterator[bytes]:
        """The text in pieces of at most `_PIECE` bytes."""
        unpacker = zlib.decompressobj(wbits=_GZIP)
        try:
            with self._file.open("rb") as file:
                while piece := file.read(_PIECE):
                    while piece and not unpacker.eof:
                        yield unpacker.decompress(piece, _PIECE)
                        piece = unpacker.unconsumed_tail
                    if piece or unpacker.unused_data:
                        raise self._fault("there is something after the end")
        except FileNotFoundError as error:
            raise StoreError(f"cannot restore {self._file}: no such file") from error
        except OSError as error:
            reason = error.strerror or error
            raise StoreError(f"cannot restore {self._file}: {reason}") from error
        except zlib.error as error:
            raise self._fault(str(error)) from error
        if not unpacker.eof:
            raise self._fault("the end is missing")

    def _parse(self, line: bytes) -> JsonObject:
        if has_more_values(line, _MOST_VALUES):
            raise self._fault(f"it holds more than {_MOST_VALUES} values")
        try:
            content: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._fault(f"it is no JSON: {error}") from error
        if not isinstance(content, dict):
            raise self._fault("it is no JSON object")
        return content

    def _fault(self, what: str) -> StoreError:
        after = "" if self._newest is None else f", after the record {self._newest}"
        return StoreError(
            f"cannot restore {self._file}: it is damaged or incomplete: line {self._number}{after}:"
            f" {what}; take another backup"
        )


def _table_of(key: str) -> str:
    return key.partition("/")[0]


def _checksum(key: str, record: JsonObject) -> int:
    return zlib.crc32(_line({"key": key, "record": record}))


def _line(content: JsonObject) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
