"""Bounds the time of a whole exchange over HTTP, however slowly the other side sends.

A time limit of a socket holds for each read alone: a server that sends one byte every few seconds
would hold the caller for hours.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Deadline(threading.local):
    """By when the calls of this thread must have ended (`time.monotonic()` seconds)."""

    def __init__(self) -> None:
        self._at = float("inf")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What is called inside ends within `seconds`, or within what is left of an outer limit."""
        outer = self._at
        self._at = min(outer, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._at = outer

    def remaining_s(self) -> float | None:
        """The seconds left; None: no limit. Raises TimeoutError when there are none."""
        if self._at == float("inf"):
            return None
        remaining = self._at - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no complete answer in time")
        return remaining


class TimedSocket:
    """A connected socket all of whose reads and writes end by the deadline of the calling
    thread."""

    def __init__(self, sock: Any, deadline: Deadline):
        self.sock = sock
        self._deadline = deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)

    def sendall(self, data: Any) -> None:
        self._limit()
        self.sock.sendall(data)

    def makefile(self, mode: str, *_: Any, **__: Any) -> io.BufferedReader:
        """The reader of an answer; http.client asks for no other kind."""
        assert mode == "rb"
        return io.BufferedReader(_TimedReader(self.sock.makefile("rb", buffering=0), self._limit))

    def _limit(self) -> None:
        if (remaining := self._deadline.remaining_s()) is not None:
            self.sock.settimeout(remaining)


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, limit: Any):
        self._raw = raw
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limit()
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
