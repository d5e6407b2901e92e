"""Relays state between two agents that cannot connect to each other, through a small buffer.

The source puts pieces and the target takes them; the faster one waits for the other. Nothing is
stored: a piece stays in memory until the target requests the next one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from speck.errors import ConflictError, TransientError

PIECE_MOST = 4 << 20
_HELD_MOST = 4 << 20
_RECHECK_S = 0.5


class OutOfOrderError(ConflictError):
    """A piece that does not follow the previous one; `received` bytes have been relayed."""

    def __init__(self, received: int):
        super().__init__(f"cannot take this piece: the next one begins at byte {received}")
        self.received = received


class Relay:
    """The pieces of one transfer."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._end: int | None = None
        self._total = 0
        self.closed = False

    @property
    def held(self) -> int:
        """Bytes that wait for the target."""
        return sum(len(piece) for _, piece in self._pieces)

    @property
    def full(self) -> bool:
        """Whether the source should pause."""
        return self.held > _HELD_MOST // 2

    def put(self, offset: int, total: int, piece: bytes) -> int:
        """Add a piece; returns the offset of the next one. Raises OutOfOrderError, and
        TransientError while the target has not called yet or is behind."""
        with self._change:
            if self._end is None:
                raise TransientError("cannot relay yet: the target's agent has not asked for it")
            if offset != self._end:
                raise OutOfOrderError(self._end)
            if self.held + len(piece) > _HELD_MOST:
                raise TransientError("cannot relay more now: the target's agent is behind")
            if piece:
                self._pieces.append((offset, piece))
            self._end += len(piece)
            self._total = total
            self._change.notify_all()
            return self._end

    def take(
        self, offset: int, wait_s: float, stopping: Callable[[], bool] = lambda: False
    ) -> tuple[int, bytes] | None:
        """Return (total, the piece at `offset`), or None if it has not come in time. Earlier pieces
        have arrived at the target and are dropped."""
        until = time.monotonic() + wait_s
        with self._change:
            while self._pieces and self._pieces[0][0] < offset:
                self._pieces.popleft()
            begins = self._pieces[0][0] if self._pieces else self._end
            if begins != offset:
                self._pieces.clear()
                self._end = offset
            while not self._pieces and not self.closed and not stopping():
                remaining_s = until - time.monotonic()
                if remaining_s <= 0:
                    return None
                self._change.wait(min(remaining_s, _RECHECK_S))
            if not self._pieces or self._pieces[0][0] != offset:
                return None
            return self._total, self._pieces[0][1]

    def close(self) -> None:
        """End the transfer; its pieces are dropped."""
        with self._change:
            self.closed = True
            self._pieces.clear()
            self._change.notify_all()
