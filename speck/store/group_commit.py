"""Joins the writes of many threads: those that come during a sync share the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from speck.store.tables import Batch


@dataclass(slots=True, eq=False)
class _Write:
    """A batch of a thread that waits for its `turn`: until it is `over`, or leads the next ones."""

    batch: Batch
    turn: threading.Lock = field(default_factory=threading.Lock)
    over: bool = False
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.turn.acquire()


class GroupCommit:
    """Hands batches to `commit`, which writes all of a list or none, in the order in which they
    came. Each write still fails or succeeds on its own.

    One thread commits what waits, wakes those whose writes these are, and gives the lead to the
    first that came meanwhile. No thread takes a lock only to learn that its write is over: a
    hundred threads would do so one after another, each of them waiting for the interpreter, before
    the next sync could begin.
    """

    def __init__(self, commit: Callable[[list[Batch]], None]):
        self._commit_all = commit
        self._queue: list[_Write] = []
        self._queueing = threading.Lock()
        self._is_led = False
        """Whether a thread commits, or was told to."""

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
            leads, self._is_led = not self._is_led, True
        if not leads:
            try:
                mine.turn.acquire()
            except BaseException:  # a signal's, in the main thread
                self._withdraw(mine)
                raise
        if not mine.over:
            self._lead()
        if mine.error is not None:
            raise mine.error

    def _lead(self) -> None:
        with self._queueing:
            writes, self._queue = self._queue, []
        self._commit(writes)
        with self._queueing:
            successor = self._queue[0] if self._queue else None
            self._is_led = successor is not None
            if successor is not None:
                successor.turn.release()
        for write in writes:
            write.turn.release()

    def _withdraw(self, mine: _Write) -> None:
        """Wait no longer for a write; if the lead has just come to it, the others need it."""
        with self._queueing:
            leads = mine in self._queue and mine.turn.acquire(blocking=False)
            if not leads and mine in self._queue:
                self._queue.remove(mine)
        if leads:
            self._lead()

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
