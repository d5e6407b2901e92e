"""What is known of a job's state without Spark: its number, and for what parallelism it is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_PARTITIONS = "spark.sql.shuffle.partitions"


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


class Checkpoint:
    """Spark's checkpoint of a query as the last run has left it; there may be none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._conf = _read_conf(folder / "offsets")

    @property
    def partitions(self) -> int | None:
        """The parts of its state; None: it has no state."""
        state = self._folder / "state"
        has_state = state.is_dir() and any(each.name.isdecimal() for each in state.iterdir())
        text = str(self._conf.get(_PARTITIONS, ""))
        return int(text) if has_state and text.isdecimal() else None

    def find_fault(self, width: int) -> str | None:
        """Why a query of parallelism `width` cannot go on in it."""
        partitions = self.partitions
        if partitions is None or partitions == width:
            return None
        return (
            f"cannot go on from its checkpoint with parallelism {width}: its state was made with"
            f" parallelism {partitions}, which cannot be changed; describe it so, or let the job"
            " begin anew with upgrade: stateless"
        )


def _read_conf(log: Path) -> Mapping[str, Any]:
    """The settings that Spark keeps with a query, of its newest batch."""
    with suppress(OSError, ValueError, AttributeError, IndexError):
        numbers = [int(each.name) for each in log.iterdir() if each.name.isdecimal()]
        metadata = (log / str(max(numbers))).read_text().splitlines()[1]
        conf = json.loads(metadata).get("conf", {})
        return conf if isinstance(conf, dict) else {}
    return {}
