"""How slow a client may be, while it sends a body or reads an answer."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios

BODY_S = 10.0
BODY_BYTES = 40 * 1024
"""A body moves this far within `BODY_S`."""

READ_RATE = 4096
"""Bytes a second that the reader of an answer must take, on average."""

READ_GRACE_S = 20.0
"""Seconds that it may take nothing before."""

READ_CREDIT_S = 120.0
"""Seconds at most that it may rest because it was faster before. A receiver whose buffer was full
reports room only when a sixteenth of the buffer is free again, or a segment: 64 KiB on loopback,
400 kB of a buffer of 6 MB. At `READ_RATE` that takes up to 100 s."""


class BodyRate:
    """The minimum rate of a transfer: the next `BODY_BYTES` within `BODY_S`. What arrived fast
    before earns no right to be slow."""

    def __init__(self, now: float):
        self.deadline = now + BODY_S
        self._moved = 0

    def count(self, count: int, now: float) -> None:
        """`count` bytes were transferred."""
        self._moved += count
        if self._moved >= BODY_BYTES:
            self._moved = 0
            self.deadline = now + BODY_S


class ReadingRate:
    """The minimum rate of a reader: `READ_RATE` on average since it began to keep us waiting.

    What counts is what its machine has acknowledged. What our kernel takes says nothing: it has
    room for megabytes, and reports that it has room again only when a third of it is free.
    """

    def __init__(self, now: float, taken: int):
        self.deadline = now + READ_GRACE_S
        self._taken = taken

    def count(self, taken: int, now: float) -> None:
        """Count how many bytes the reader has taken altogether."""
        moved = max(0, taken - self._taken)
        self._taken += moved
        self.deadline = min(self.deadline + moved / READ_RATE, now + READ_CREDIT_S)


def count_unacknowledged(sock: socket.socket) -> int:
    """How many bytes our kernel holds because the client's machine has not acknowledged them."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
