"""The transfer format: the files of a state as one stream of bytes of known length, and back.

Each file is a line of JSON, its bytes, and a line with its SHA-256. The last line holds the number
of files and the SHA-256 of everything before it. The same state always gives the same stream, so an
interrupted sender can continue at the receiver's position.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from speck.agent.state_files import StateFiles
from speck.errors import PermanentError

_BLOCK = 1 << 16
_LINE_MOST = 8192
_HEAD = b"speck-state 1\n"


class CorruptError(PermanentError):
    """The received stream differs from the one sent."""


class Stream:
    """The stream of a state, to be read in pieces from any offset, while its files are open."""

    def __init__(self, files: StateFiles):
        self._files = files
        self._at = 0
        self.size = _size(files)
        self._seek(0)

    def read(self, offset: int, most: int) -> bytes:
        """At most `most` bytes from `offset`; fewer only at the end.

        Raises PermanentError when a file was changed or deleted meanwhile.
        """
        if offset != self._at:
            self._seek(offset)
        self._at = -1  # if a file is missing, the next read starts over
        while len(self._buffer) < most:
            block = next(self._blocks, None)
            if block is None:
                break
            self._buffer += block
        piece = bytes(self._buffer[:most])
        del self._buffer[:most]
        self._at = offset + len(piece)
        return piece

    def _seek(self, offset: int) -> None:
        """Start over and skip to `offset`; the skipped bytes are read again for the digests."""
        self._blocks = _blocks(self._files)
        self._buffer = bytearray()
        self._at = 0
        while self._at < offset:
            block = next(self._blocks, b"")
            if not block:
                raise PermanentError(f"cannot send from byte {offset}: there are {self.size}")
            self._at += len(block)
        if self._at > offset:
            self._buffer += block[len(block) - (self._at - offset) :]
            self._at = offset


def unpack(stream: Path, into: Path) -> int:
    """Write the files of a complete stream into the new folder `into`, each synced, and return
    their number.

    Raises CorruptError; after that or an OSError, `into` does not exist.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    try:
        with stream.open("rb") as source:
            return _unpack(source, into)
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that files created, renamed or deleted in it are durably so."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _size(files: StateFiles) -> int:
    count = len(files.names)
    tail = len(_tail("0" * 64)) * count + len(_end(count, "0" * 64))
    return len(_HEAD) + tail + sum(len(_front(name, size)) + size for name, size in files.names)


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _front(name: str, size: int) -> bytes:
    return _line(file=name, bytes=size)


def _tail(digest: str) -> bytes:
    return _line(sha256=digest)


def _end(files: int, digest: str) -> bytes:
    return _line(files=files, sha256=digest)


def _blocks(files: StateFiles) -> Iterator[bytes]:
    whole = hashlib.sha256()

    def hash_block(block: bytes) -> bytes:
        whole.update(block)
        return block

    yield hash_block(_HEAD)
    for name, size in files.names:
        yield hash_block(_front(name, size))
        one = hashlib.sha256()
        remaining = size
        with files.open(name) as file:
            while remaining > 0:
                block = file.read(min(remaining, _BLOCK))
                if not block:
                    raise PermanentError(
                        f"cannot send {files.folder / name}: it was truncated meanwhile"
                    )
                one.update(block)
                remaining -= len(block)
                yield hash_block(block)
        yield hash_block(_tail(one.hexdigest()))
    yield _end(len(files.names), whole.hexdigest())


class _Reader:
    """Reads lines and blocks, and hashes everything read."""

    def __init__(self, source: BinaryIO):
        self._source = source
        self.whole = hashlib.sha256()

    def line(self, *, hashed: bool = True) -> tuple[dict[str, Any], bytes]:
        raw = self._source.readline(_LINE_MOST)
        try:
            fields = json.loads(raw)
        except ValueError as error:
            raise CorruptError("cannot read the received state: a line is damaged") from error
        if not isinstance(fields, dict) or not raw.endswith(b"\n"):
            raise CorruptError("cannot read the received state: a line is damaged")
        if hashed:
            self.whole.update(raw)
        return fields, raw

    def head(self) -> None:
        raw = self._source.readline(_LINE_MOST)
        if raw != _HEAD:
            raise CorruptError("cannot read the received state: unknown format or version")
        self.whole.update(raw)

    def block(self, most: int) -> bytes:
        block = self._source.read(min(most, _BLOCK))
        if not block:
            raise CorruptError("cannot read the received state: it ends early")
        self.whole.update(block)
        return block


def _unpack(source: BinaryIO, into: Path) -> int:
    reader = _Reader(source)
    reader.head()
    count = 0
    while True:
        fields, raw = reader.line(hashed=False)
        if "files" in fields:
            if fields != {"files": count, "sha256": reader.whole.hexdigest()} or source.read(1):
                raise CorruptError("cannot accept the received state: its SHA-256 differs")
            break
        reader.whole.update(raw)
        _unpack_file(reader, into, fields)
        count += 1
    for folder in sorted({path.parent for path in into.rglob("*")}, reverse=True):
        sync_folder(folder)
    return count


def _unpack_file(reader: _Reader, into: Path, fields: dict[str, Any]) -> None:
    name, remaining = fields.get("file"), fields.get("bytes")
    if not isinstance(name, str) or not isinstance(remaining, int) or remaining < 0:
        raise CorruptError("cannot read the received state: a line is damaged")
    parts = name.split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise CorruptError(f"cannot accept a file named {name!r}")
    path = into.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        while remaining > 0:
            block = reader.block(remaining)
            digest.update(block)
            file.write(block)
            remaining -= len(block)
        file.flush()
        os.fsync(file.fileno())
    trailer, _ = reader.line()
    if trailer != {"sha256": digest.hexdigest()}:
        raise CorruptError(f"cannot accept {name}: its SHA-256 differs")
