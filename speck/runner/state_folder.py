"""Where a program keeps its state, and what is reported of that."""

from __future__ import annotations

import time
from pathlib import Path

from speck.runner import claims
from speck.runner.files import measure_folder

_SIZE_TURNS = 5
"""The size of a state is measured at each so many readings of its number: it takes longer."""


class StateFolder:
    """The folder, and what was last read of it; `renew_s`: how old that may be."""

    def __init__(self, path: Path, renew_s: float) -> None:
        self.path = path
        self.bytes: int | None = None
        self._renew_s = renew_s
        self._checkpoint: tuple[int, int] | None = None
        self._read_at = float("-inf")
        self._readings = 0

    @property
    def location(self) -> str:
        return f"file://{self.path}"

    def expire(self) -> None:
        """Read it anew at the next look: the program has ended."""
        self._read_at = float("-inf")

    def find_checkpoint(self, *, is_over: bool) -> tuple[int | None, int]:
        """Number and time of the newest checkpoint, in ms; of a program that is over they are read
        once."""
        now = time.monotonic()
        is_old = not is_over and now - self._read_at >= self._renew_s
        if is_old or self._read_at == float("-inf"):
            self._checkpoint, self._read_at = claims.read_checkpoint(self.path), now
            if self._readings % _SIZE_TURNS == 0:
                self.bytes = measure_folder(self.path)
            self._readings += 1
        return self._checkpoint or (None, 0)
