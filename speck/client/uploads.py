"""Files as the bodies of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from speck.client.transport import CHUNK

LONG_S = 1800.0
"""How long the transfer of a large file may take."""


class FileBody:
    """A file as a request's body of known length; `on_sent` is called with each chunk's size."""

    def __init__(self, stream: BinaryIO, length: int, on_sent: Callable[[int], object] | None):
        self._stream = stream
        self._length = length
        self._on_sent = on_sent or (lambda _: None)

    def __len__(self) -> int:
        return self._length

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(CHUNK if size < 0 else size)
        self._on_sent(len(chunk))
        return chunk
