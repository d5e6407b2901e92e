"""What was asked for and has no line in the audit log yet: a file beside the log.

An act is carried out, then its line is written, since the line says how it ended. Between the two
the process may be killed. So a request that is about to act takes a slot of this file, and empties
it once its line is written; a slot that is full at the next start is an act whose outcome is not
known. A slot costs a write of a kilobyte into the system's cache, and no room that grows.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from speck.model.values import JsonObject

_SLOT = 1024
_LONGEST = 300


class Intents:
    """The slots in `path`, which is made when the first is taken."""

    def __init__(self, path: Path):
        self._path = path
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._taken: dict[int, JsonObject] = {}

    def add(self, fields: JsonObject) -> int | None:
        """Take a slot; None when the disk does not take it, which stops no request."""
        with self._lock:
            slot = min(set(range(len(self._taken) + 1)) - self._taken.keys())
            try:
                self._write(slot, _pack(fields))
            except OSError:
                return None
            self._taken[slot] = fields
            return slot

    def rename(self, slot: int, about: str) -> None:
        """Say what the act of a slot is about, once that is known."""
        with self._lock, suppress(OSError):
            self._taken[slot] = {**self._taken[slot], "object": about}
            self._write(slot, _pack(self._taken[slot]))

    def remove(self, slot: int) -> None:
        """Empty a slot: its act has a line now."""
        with self._lock, suppress(OSError):
            self._write(slot, b"")
            del self._taken[slot]

    def read_left(self) -> list[JsonObject]:
        """What a process that was killed has left in its slots."""
        left: list[JsonObject] = []
        with suppress(OSError):
            content = self._path.read_bytes()
            for begin in range(0, len(content), _SLOT):
                with suppress(ValueError):
                    left.append(json.loads(content[begin : begin + _SLOT]))
        return [fields for fields in left if isinstance(fields, dict)]

    def keep(self, left: Sequence[JsonObject]) -> None:
        """Empty all slots that a process has left, but for these, in the order of `read_left`. One
        that is kept is never missing: it moves to the front before its former slot is emptied."""
        with self._lock, suppress(OSError):
            for slot, fields in enumerate(left):
                self._write(slot, _pack(fields))
            self._taken = dict(enumerate(left))
            os.truncate(self._path, len(left) * _SLOT)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, slot: int, text: bytes) -> None:
        os.pwrite(self._open(), text.ljust(_SLOT), slot * _SLOT)

    def _open(self) -> int:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor


def _pack(fields: JsonObject) -> bytes:
    """The text of a slot; long names are cut."""
    for longest in (_LONGEST, 40):
        short = {
            key: value[:longest] if isinstance(value, str) else value
            for key, value in fields.items()
        }
        text = json.dumps(short, separators=(",", ":")).encode()
        if len(text) <= _SLOT:
            break
    return text[:_SLOT]
