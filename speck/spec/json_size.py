"""How many values a JSON text holds, counted before it is parsed.

A parsed value takes some 60 to 250 bytes, its text as few as two: `[{},{},...]` grows to thirty
times its size. The count looks only for signs of structure, and is about as fast as reading.
"""

from __future__ import annotations

import re

_TEXT = re.compile(rb'"[^"]*"')
_STRUCTURE = (b",", b":", b"[", b"{")


def has_more_values(text: bytes, most: int) -> bool:
    """Whether JSON holds more than `most` values, each key counted as one. Text that is no JSON may
    count more, never less, than what a parser makes of it before it fails."""
    return count_values(text, most) > most


def count_values(text: bytes, most: int) -> int:
    """The number of values, as for `has_more_values`, or a number that is larger and at most
    `most`; any number above `most` if there are more than that."""
    count = _count(text)
    if count <= most:
        return count  # signs within texts count, too
    bare = without_texts(text, most)
    return count if bare is None else _count(bare)


def without_texts(text: bytes, most: int) -> bytes | None:
    """JSON without its texts; None if it holds more than `most` of them."""
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * most:
        return None
    return _TEXT.sub(b"", unescaped)


def _count(text: bytes) -> int:
    return 1 + sum(map(text.count, _STRUCTURE))
