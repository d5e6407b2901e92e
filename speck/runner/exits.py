"""How a run of a program has ended."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speck.runner.files import read_foreign
from speck.runner.owners import OWN


@dataclass(frozen=True, slots=True)
class Exit:
    """The exit status, None if the run did not get to one; `with_machine`: that was shut down."""

    status: int | None
    with_machine: bool

    def explain(self) -> str:
        """Say it in words that follow the program's name."""
        if self.status is None:
            return "it was killed"
        if self.status > 128:
            with suppress(ValueError):
                return f"it was ended by {signal.Signals(self.status - 128).name}"
        return f"it ended with status {self.status}"


def read_exit(folder: Path, run: int) -> Exit:
    """What the shim has stored of a program's run with that number."""
    text = read_foreign(folder / OWN / f"exit.{run}") or b""
    status, *outside = text.split() or [b""]
    return Exit(int(status) if status.isdigit() else None, bool(outside))
