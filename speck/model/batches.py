"""Takes messages of speck's sinks apart: a batched link carries many records in each.

A message is a batch when its content type says so. Its stamp is that of the first record and how
many they are, `<producer>/<epoch>/<number>+<count>`; the payload is of each record its length (7
bits a byte, lowest first, the eighth: more follow) and its bytes; with zstd, the length of all that
and then that, compressed. Any other message is one record. See edge_jobs/README.md, "Links".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from speck.errors import PermanentError

STAMP = "speck"
"""The user property that holds a stamp."""

FRAMED, ZSTD = "speck/batch", "speck/batch+zstd"
"""Content types."""

MAX_BYTES = 16 << 20
MAX_RECORDS = 10_000
_LENGTH_BYTES = 5


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a message; `stamp` is `<producer>/<epoch>/<number>`, None for a foreign one."""

    stamp: str | None
    payload: bytes


def records(message: Any) -> list[Record]:
    """The records of a message (paho's), in order. Raises PermanentError for a damaged batch."""
    properties = message.properties
    stamps = dict(getattr(properties, "UserProperty", ()))
    content_type = getattr(properties, "ContentType", None)
    return list(unpack(stamps.get(STAMP), content_type, bytes(message.payload)))


def unpack(stamp: str | None, content_type: str | None, payload: bytes) -> Iterator[Record]:
    """The same of a message's parts. Raises PermanentError."""
    if content_type not in (FRAMED, ZSTD):
        yield Record(stamp, payload)
        return
    found = list(_frames(_decompressed(payload) if content_type == ZSTD else payload))
    series, _, numbers = (stamp or "").rpartition("/")
    first, _, count = numbers.partition("+")
    if not (series and first.isdecimal() and count.isdecimal()):
        yield from (Record(None, each) for each in found)
        return
    if len(found) != int(count):
        raise PermanentError(f"cannot read a batch: it has {len(found)} records, not {count}")
    for number, each in enumerate(found, int(first)):
        yield Record(f"{series}/{number}", each)


def _frames(payload: bytes) -> Iterator[bytes]:
    at = count = 0
    while at < len(payload):
        length, at = _length(payload, at)
        count += 1
        if length > len(payload) - at or count > MAX_RECORDS:
            raise PermanentError(
                f"cannot read a batch: record {count} of {length} bytes is past its end, or too"
                " many"
            )
        yield payload[at : at + length]
        at += length
    if not count:
        raise PermanentError("cannot read a batch: it is empty")


def _length(payload: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends."""
    value = 0
    for index, byte in enumerate(payload[at : at + _LENGTH_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise PermanentError("cannot read a batch: it ends within a length")


def _decompressed(payload: bytes) -> bytes:
    from pyarrow import Codec  # takes its time to import

    length, at = _length(payload, 0)
    if length > MAX_BYTES:
        raise PermanentError(f"cannot read a batch: {length} bytes are more than {MAX_BYTES}")
    try:
        return bytes(Codec("zstd").decompress(payload[at:], decompressed_size=length))
    except OSError as error:
        raise PermanentError(f"cannot read a batch: {error}") from error
