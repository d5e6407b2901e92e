"""Files beside the store, for exports and uploads: they leave the room that the store needs."""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import Any

from speck.errors import StoreFullError
from speck.store.leveldb import measure_room

_CHECK_BYTES = 1 << 20
"""So much is written between two looks at the disk."""


class SparingFile(FileIO):
    """A file that is refused more bytes before its disk is full.

    A write of the store that finds no room makes it refuse all later ones, so files that can wait
    leave twice the room that it keeps for itself.
    """

    def __init__(self, file: Path | int, folder: Path, doing: str):
        """`file` is a new one, or its descriptor, on the disk of `folder`; `doing` completes the
        message "cannot ...". Raises StoreFullError."""
        self._folder = folder
        self._doing = doing
        self._unchecked = 0
        self.refuse_without_room()
        super().__init__(file, "w+b")

    def write(self, data: Any, /) -> int:
        """Write a buffer of bytes. Raises StoreFullError before the store lacks room."""
        self._unchecked += memoryview(data).nbytes
        if self._unchecked >= _CHECK_BYTES:
            self.refuse_without_room()
            self._unchecked = 0
        return super().write(data)

    def refuse_without_room(self) -> None:
        """Raise StoreFullError if the disk has no room to spare."""
        free, reserve = measure_room(self._folder)
        if free < 2 * reserve:
            raise StoreFullError(
                f"cannot {self._doing}: {free} bytes are free on the disk of {self._folder}, of"
                f" which speck keeps {2 * reserve}; free space there, then try again"
            )
