"""Joins the writes of many threads: those that come during a sync share the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from speck.store.tables import Batch


@dataclass(slots=True)
class _Write:
    batch: Batch
    over: bool = False
    error: BaseException | None = None


class GroupCommit:
    """Hands batches to `commit`, which writes all of a list or none, in the order in which they
    came. Each write still fails or succeeds on its own."""

    def __init__(self, commit: Callable[[list[Batch]], None]):
        self._commit_all = commit
        self._queue: list[_Write] = []
        self._queueing = threading.Lock()
        self._committing = threading.Lock()

    @property
    def queued(self) -> int:
        """The number of writes that wait for the one that is being synced."""
        with self._queueing:
            return len(self._queue)

    def write(self, batch: Batch) -> None:
        """Write a batch, with all that wait at that moment. Raises what `commit` raises for it."""
        mine = _Write(batch)
        with self._queueing:
            self._queue.append(mine)
        with self._committing:
            if not mine.over:
                with self._queueing:
                    writes, self._queue = self._queue, []
                self._commit(writes)
        if mine.error is not None:
            raise mine.error

    def _commit(self, writes: list[_Write]) -> None:
        try:
            self._commit_all([write.batch for write in writes])
        except BaseException as error:
            if len(writes) > 1:  # one of them is at fault: write each on its own
                for write in writes:
                    self._commit([write])
                return
            writes[0].error = error
        for write in writes:
            write.over = True
