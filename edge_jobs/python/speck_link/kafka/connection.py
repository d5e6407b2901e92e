"""One end of a link at Kafka, kept connected.

Kafka's library has threads, and calls that wait; the job has one thread, which never does. So each
connection works in a thread of its own until it ends, and leaves what has come in queues; a pipe
wakes the job. The library connects anew by itself: what is one connection here ends when it is cut
off from all brokers for a moment, so that what they may have lost is looked at over the next one.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import suppress
from typing import Generic, TypeVar

from kafka.errors import KafkaConnectionError

from speck_link.arguments import Link
from speck_link.kafka.client import OpenClient, explain

_LOOK_S = 1.0
_MISSED_LOOKS = 2
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 2.0
_LEAVE_S = 4.0
_SAID_EVERY = 20
_TRUSTED_S = 10.0
"""A connection that ends earlier, and was of no use, is likely to end so the next time."""


class Signal:
    """Wakes a thread that waits in `select`; another one sets it. Who is woken clears it first, and
    looks into the queues then: so nothing is missed."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._is_set = False

    def fileno(self) -> int:
        return self._out

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            with suppress(OSError):
                os.write(self._in, b"x")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._out, 4096)
        self._is_set = False


class LogConnection:
    """A base. `open` and `serve` are run by the connection's thread, and may wait and raise."""

    def __init__(self, link: Link, signal: Signal) -> None:
        self.link, self._signal = link, signal
        self.is_ready = self.is_ended = False
        self.error: Exception | None = None
        """Why it has ended; None: it was left."""
        self._leaving = False
        self._awake = threading.Event()
        self._missed = 0
        self._looked = time.monotonic()
        name = f"speck-kafka-{link.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- for the job's thread

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """End it; what was sent, or is to be committed, gets there before."""
        self._leaving = True
        self._awake.set()
        self._thread.join(_LEAVE_S)

    @property
    def is_over(self) -> bool:
        """Whether it has given back all that it had."""
        return not self._thread.is_alive()

    # -- in its own thread

    def _run(self) -> None:
        try:
            self.open()
            self.is_ready = True
            self._signal.set()
            while not self._leaving:
                self.serve()
        except Exception as error:
            self.error = error
        self.is_ended = True
        with suppress(Exception):  # what fails now is sent, or committed, again
            self.release()
        self._signal.set()

    def open(self) -> None:
        """Connect, within some seconds."""
        raise NotImplementedError

    def serve(self) -> None:
        """One turn of work, for a moment."""
        raise NotImplementedError

    def release(self) -> None:
        """Give back what `open` has taken, also if that has failed midway."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Wait until somebody wakes it, so long at most."""
        self._awake.wait(seconds)
        self._awake.clear()

    def look(self, client: OpenClient) -> None:
        """Raises KafkaConnectionError if there was no connection to any broker at this look and the
        one before."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        self._missed = 0 if client.is_connected else self._missed + 1
        if self._missed >= _MISSED_LOOKS:
            raise KafkaConnectionError("no broker can be reached")


C = TypeVar("C", bound=LogConnection)


class KafkaEnd(Generic[C]):
    """A base: keeps one connection after the other, with a growing pause between attempts. Of the
    job's thread."""

    is_full = False
    doing = "use"

    def __init__(self, link: Link) -> None:
        self.link = link
        self.problem: str | None = "not connected yet"
        self.ready = False
        self.signal = Signal()
        self.current: C | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._retry_at = 0.0
        self._failures = 0
        self._ready_at = 0.0
        self._is_doubted = False
        self._is_closed = False

    # -- for the loop

    def fileno(self) -> int:
        return self.signal.fileno()

    def wants_write(self) -> bool:
        return False

    def write(self) -> None: ...

    def read(self) -> None:
        self.signal.clear()
        self._take()

    def tend(self, now: float) -> None:
        """Look at the connection; open another one when it is time."""
        current = self.current
        if current is not None:
            self._look_at(current, now)
        elif now >= self._retry_at and not self._is_closed:
            self.current = self._connect()
            self.current.start()
        self._take()

    def disconnect(self) -> None:
        self._is_closed = True
        if self.current is not None:
            self.current.leave()

    def _look_at(self, current: C, now: float) -> None:
        if current.is_ended:
            if self.ready:
                self._take()
                self._lose()
                self.ready = False
                self._is_doubted = self._is_doubted or now - self._ready_at < _TRUSTED_S
            if current.is_over:
                self._note_end(current, now)
        elif current.is_ready and not self.ready:
            self.ready, self._ready_at = True, now
            if not self._is_doubted:
                self.trust()
            self._begin(current)
        elif self.ready and self._is_doubted and now - self._ready_at > _TRUSTED_S:
            self.trust()

    def trust(self) -> None:
        """The connection is of use: nothing is wrong any more."""
        if self.problem is not None or self._is_doubted:
            self._pause_s, self._failures, self.problem = _FIRST_PAUSE_S, 0, None
            self._is_doubted = False

    def _note_end(self, ended: C, now: float) -> None:
        self.current = None
        if ended.error is None:
            return
        self.problem = f"cannot {self.doing} {self.link}: {explain(ended.error)}"
        if self._failures % _SAID_EVERY == 0:
            print(f"{self.problem}; trying again", file=sys.stderr)
        self._failures += 1
        self._retry_at = now + self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(_MOST_PAUSE_S, 2 * self._pause_s)

    # -- what differs

    def _connect(self) -> C:
        """Make another connection."""
        raise NotImplementedError

    def _begin(self, connection: C) -> None:
        """It is ready."""

    def _take(self) -> None:
        """Take what has come out of the queues of the connection."""

    def _lose(self) -> None:
        """The connection has ended."""
