"""How records lie in messages: one as it is, or a batch of several (edge_jobs/README.md, "Links").

zstd is that of the system (libzstd, which Debian's package manager needs), called by ctypes: so the
archive of programs holds no binary.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from typing import Any

FRAMED, ZSTD = "speck/batch", "speck/batch+zstd"
MAX_RECORDS = 10_000
MAX_UNPACKED = 16 << 20
MAX_BATCH = 256 << 10
_LENGTH_BYTES = 5
_LEVEL = 3


class BatchError(ValueError):
    """A message is no batch though it says so."""


class MissingZstdError(RuntimeError):
    """This system has no libzstd."""


@cache
def load_zstd() -> Any:
    """The library. Raises MissingZstdError."""
    name = ctypes.util.find_library("zstd") or "libzstd.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise MissingZstdError(
            "cannot use zstd: this system has no libzstd; install it (Debian: libzstd1)"
        ) from error
    for function in ("ZSTD_compressBound", "ZSTD_compress", "ZSTD_decompress"):
        getattr(library, function).restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    address, size, content = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    library.ZSTD_decompress.argtypes = [address, size, content, size]
    library.ZSTD_compress.argtypes = [address, size, content, size, ctypes.c_int]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    return library


def compress(content: bytes) -> bytes:
    library = load_zstd()
    room = library.ZSTD_compressBound(len(content))
    out = ctypes.create_string_buffer(room)
    size = library.ZSTD_compress(out, room, content, len(content), _LEVEL)
    if library.ZSTD_isError(size):
        raise BatchError("cannot compress a batch")
    return out.raw[:size]


def decompress(content: bytes, length: int) -> bytes:
    library = load_zstd()
    out = ctypes.create_string_buffer(max(1, length))
    size = library.ZSTD_decompress(out, length, content, len(content))
    if library.ZSTD_isError(size) or size != length:
        raise BatchError("its compressed bytes are damaged")
    return out.raw[:length]


def encode_length(length: int) -> bytes:
    """7 bits a byte, lowest first; the eighth: more follow."""
    out = bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)


def _read_length(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(payload[at : at + _LENGTH_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise BatchError("it ends within a length")


def unpack(content_type: str, payload: bytes, count: int | None) -> list[bytes]:
    """The records of a batch; `count` is what its stamp says. Raises BatchError."""
    if content_type == ZSTD:
        length, at = _read_length(payload, 0)
        if length > MAX_UNPACKED:
            raise BatchError(f"{length} bytes are more than {MAX_UNPACKED}")
        payload = decompress(payload[at:], length)
    records: list[bytes] = []
    at = 0
    while at < len(payload):
        length, at = _read_length(payload, at)
        if length > len(payload) - at or len(records) == MAX_RECORDS:
            raise BatchError("a record reaches past its end, or it has too many")
        records.append(payload[at : at + length])
        at += length
    if not records or count not in (None, len(records)):
        raise BatchError(f"it has {len(records)} records, not {count}")
    return records


def pack(records: list[bytes], *, in_batches: bool, zstd: bool) -> tuple[str | None, bytes]:
    """The content type and payload of a message; a single record goes as it is, unless compression
    makes it smaller."""
    if zstd:
        framed = b"".join(encode_length(len(each)) + each for each in records)
        if len(framed) <= MAX_UNPACKED:
            packed = encode_length(len(framed)) + compress(framed)
            overhead = len(ZSTD) + 3 + 2 if len(records) == 1 else 0
            most = len(records[0]) if len(records) == 1 else len(framed)
            if len(packed) + overhead < most:
                return ZSTD, packed
    if len(records) == 1 or not in_batches:
        return None, records[0]
    return FRAMED, b"".join(encode_length(len(each)) + each for each in records)
