"""What is known of a job's state without Spark."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class StateNumber:
    """The number of the state; it goes up after each batch, and while there is nothing to do."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._number = int.from_bytes(file.read_bytes()[:8], "big") if file.exists() else 0

    def step(self) -> None:
        """Raise it, if the disk takes that; a full one ends no job by this."""
        fresh = self._file.with_name(".checkpoint.new")
        with suppress(OSError):
            with fresh.open("wb") as out:
                out.write((self._number + 1).to_bytes(8, "big"))
                out.flush()
                os.fsync(out.fileno())
            fresh.rename(self._file)
            self._number += 1
