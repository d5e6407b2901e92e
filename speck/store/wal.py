"""Distinguishes a damaged length in a LevelDB log from a record that a kill has truncated.

If a record in the last block of a log (or manifest) is longer than the rest of the file, LevelDB
assumes that its writer was killed, and drops it and all following records of the block, silently
even with paranoid checks. One flipped bit in a length is enough. A truncated record matches its
checksum at no length; a record whose length is damaged does.

Format: https://github.com/google/leveldb/blob/main/doc/log_format.md; a record is a masked CRC-32C
of type and payload (4 bytes), the payload's length (2), the type (1), and the payload.
"""

from __future__ import annotations

import struct
from pathlib import Path

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8


def _table() -> tuple[int, ...]:
    entries = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)


_TABLE = _table()


def find_damage(file: Path) -> int | None:
    """Find a record whose length is damaged in the last block of a log or manifest; returns its
    offset in bytes, or None."""
    content = file.read_bytes()
    end = len(content)
    at = end - end % _BLOCK
    while end - at >= _HEADER.size:
        checksum, length, kind = _HEADER.unpack_from(content, at)
        payload = at + _HEADER.size
        if payload + length > end:
            return at if _matches(checksum, kind, content[payload:]) else None
        at = payload + length
    return None


def _matches(masked: int, kind: int, rest: bytes) -> bool:
    """Whether the checksum is that of the type and some beginning of `rest`."""
    rotated = (masked - _MASK) & 0xFFFFFFFF
    expected = ((rotated >> 17 | rotated << 15) & 0xFFFFFFFF) ^ 0xFFFFFFFF
    state = _step(0xFFFFFFFF, kind)
    if state == expected:
        return True
    for byte in rest:
        state = _step(state, byte)
        if state == expected:
            return True
    return False


def _step(state: int, byte: int) -> int:
    return _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
