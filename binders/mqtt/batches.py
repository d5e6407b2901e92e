"""Splits messages of speck's sinks into records: a message of a batched link carries many.

A message is a batch when its content type says so. Its stamp is the stamp of its first record and
the number of its records, `<producer>/<epoch>/<number>+<count>`. The payload is the length of each
record (a varint: 7 bits a byte, lowest first, the eighth bit set if more bytes follow) and then
its bytes. With zstd it is the uncompressed length of all that, followed by the compressed bytes.
Any other message is one record. See edge_jobs/README.md, "Links".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from speck.errors import PermanentError
from speck.model.record import Record

STAMP = "speck"
"""The name of the property of a message that holds the stamp."""

FRAMED, ZSTD = "speck/batch", "speck/batch+zstd"
"""Content types."""

MAX_BYTES = 16 << 20
MAX_RECORDS = 10_000
_LENGTH_BYTES = 5
_STAMP = re.compile(
    r"(?P<series>.{1,500})/(?P<first>[0-9]{1,18})\+(?P<count>[0-9]{1,18})", re.DOTALL
)
"""Each record repeats the series, and int() refuses thousands of digits."""


def unpack(stamp: str | None, content_type: str | None, payload: bytes) -> Iterator[Record]:
    """The records of a message, in order. Raises PermanentError for a damaged batch."""
    if content_type not in (FRAMED, ZSTD):
        yield Record(stamp, payload)
        return
    payloads = list(_frames(_decompress(payload) if content_type == ZSTD else payload))
    numbered = _STAMP.fullmatch(stamp or "")
    if numbered is None:
        yield from (Record(None, each) for each in payloads)
        return
    series, first, count = numbered["series"], int(numbered["first"]), int(numbered["count"])
    if len(payloads) != count:
        raise PermanentError(f"cannot read a batch: it has {len(payloads)} records, not {count}")
    for number, each in enumerate(payloads, first):
        yield Record(f"{series}/{number}", each)


def _frames(payload: bytes) -> Iterator[bytes]:
    at = count = 0
    while at < len(payload):
        length, at = _read_length(payload, at)
        count += 1
        if length > len(payload) - at or count > MAX_RECORDS:
            raise PermanentError(
                f"cannot read a batch: record {count} of {length} bytes reaches past its end, or"
                f" it has more than {MAX_RECORDS} records"
            )
        yield payload[at : at + length]
        at += length
    if not count:
        raise PermanentError("cannot read a batch: it is empty")


def _read_length(payload: bytes, at: int) -> tuple[int, int]:
    """Return the length that is encoded at offset `at`, and the offset behind it."""
    value = 0
    for index, byte in enumerate(payload[at : at + _LENGTH_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise PermanentError("cannot read a batch: it ends within a length")


def _decompress(payload: bytes) -> bytes:
    from pyarrow import Codec  # slow to import

    length, at = _read_length(payload, 0)
    if length > MAX_BYTES:
        raise PermanentError(f"cannot read a batch: {length} bytes are more than {MAX_BYTES}")
    try:
        return bytes(Codec("zstd").decompress(payload[at:], decompressed_size=length))
    except OSError as error:
        raise PermanentError(f"cannot read a batch: {error}") from error
