"""The names in a zip archive, read from its central directory alone and in bounded memory.

An archive describes itself more than once: in its end record, in a second one for large archives
(zip64) with a record that says where that is, and in the directory. Readers differ in which of them
they believe. This one refuses archives whose descriptions differ, so that a JVM finds in an archive
what was checked here.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_ENTRIES = 100_000
MAX_DIRECTORY_BYTES = 16 << 20
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END_SIGN, _LOCATOR_SIGN, _END64_SIGN = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
_ENTRY_SIGN = b"PK\x01\x02"
_TAIL = _END.size + 0xFFFF  # the end record, and the longest comment behind it
_UNKNOWN = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
"""Entries, bytes and offset in an end record that leaves them to its zip64 record."""
_AMBIGUOUS = "its end record is ambiguous"


@dataclass(frozen=True, slots=True)
class _Directory:
    """Where the directory is, and how many entries the end record promises."""

    start: int
    bytes: int
    entries: int


def read_names(file: Path) -> Iterator[bytes]:
    """The name of each entry, as the archive spells it; at most `MAX_ENTRIES`.

    Raises OSError, and ValueError if it is no zip archive, is damaged or ambiguous, or has too many
    entries; no more is read then."""
    with file.open("rb") as stream:
        directory = _find_directory(stream)
        stream.seek(directory.start)
        yield from _read_entries(stream, directory)


def _read_entries(stream: BinaryIO, directory: _Directory) -> Iterator[bytes]:
    remaining = directory.bytes
    for _ in range(directory.entries):
        remaining -= _ENTRY.size
        fields = _ENTRY.unpack(_read(stream, _ENTRY.size if remaining >= 0 else 0, _ENTRY.size))
        name, extra, comment = fields[10:13]
        remaining -= name + extra + comment
        if fields[0] != _ENTRY_SIGN or remaining < 0:
            raise ValueError("its directory is damaged")
        yield _read(stream, name, name)
        stream.seek(extra + comment, os.SEEK_CUR)
    if remaining:
        raise ValueError("its directory holds more than its end record says")


def _find_directory(stream: BinaryIO) -> _Directory:
    size = stream.seek(0, os.SEEK_END)
    tail_start = max(0, size - _TAIL)
    stream.seek(tail_start)
    tail = stream.read(_TAIL)
    at = tail.rfind(_END_SIGN)
    if at < 0:
        raise ValueError("it is no zip archive")
    if len(tail) - at < _END.size:
        raise ValueError(_AMBIGUOUS)
    _, disk, first_disk, here, entries, length, offset, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise ValueError(_AMBIGUOUS)
    if disk not in (0, 0xFFFF) or first_disk not in (0, 0xFFFF) or here != entries:
        raise ValueError("it is one part of several")
    end = tail_start + at
    if end >= _LOCATOR.size:
        stream.seek(end - _LOCATOR.size)
        locator = stream.read(_LOCATOR.size)
        if locator.startswith(_LOCATOR_SIGN):
            return _find_directory64(stream, end, locator, (entries, length, offset))
    return _place(end, entries, length, offset)


def _find_directory64(
    stream: BinaryIO, end: int, locator: bytes, brief: tuple[int, int, int]
) -> _Directory:
    """Where the zip64 record directly before the `locator` says. What the `brief` end record holds
    and what the locator says must agree with it."""
    at = end - _LOCATOR.size - _END64.size
    if at < 0:
        raise ValueError(_AMBIGUOUS)
    stream.seek(at)
    record = _END64.unpack(_read(stream, _END64.size, _END64.size))
    if record[0] != _END64_SIGN or record[1] != _END64.size - 12 or record[6] != record[7]:
        raise ValueError(_AMBIGUOUS)
    entries, length, offset = record[7:]
    agrees = all(
        value in (whole, unknown)
        for value, whole, unknown in zip(brief, record[7:], _UNKNOWN, strict=True)
    )
    directory = _place(at, entries, length, offset)
    prefix = directory.start - offset
    if not agrees or _LOCATOR.unpack(locator)[2] + prefix != at:
        raise ValueError(_AMBIGUOUS)
    return directory


def _place(end: int, entries: int, length: int, offset: int) -> _Directory:
    """The directory ends where its end record begins. What is before the archive (the shell script
    of one that is executable) moves it behind its `offset`."""
    if entries > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise ValueError(
            f"it holds {entries} files in a directory of {length} bytes; an archive may hold"
            f" {MAX_ENTRIES} in {MAX_DIRECTORY_BYTES} bytes"
        )
    start = end - length
    if start < offset:
        raise ValueError("its directory is not where it should be")
    return _Directory(start, length, entries)


def _read(stream: BinaryIO, length: int, needed: int) -> bytes:
    content = stream.read(length)
    if len(content) < needed:
        raise ValueError("its directory is damaged")
    return content
