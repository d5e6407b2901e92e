"""A client's socket that never waits, and what is still to be sent over it."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from gunicorn.http.wsgi import FileWrapper  # type: ignore[import-untyped]

from speck.api.server.minimum_rates import ReadingRate, count_unacknowledged

CHUNK = 256 * 1024
BLOCKED = object()
"""What a call returns that would have to wait."""


class ClientSocket:
    """`interest` is what the poller is to wait for once a call was blocked."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None):
        sock.setblocking(False)
        self.interest = EVENT_READ
        self._socket = sock
        if tls is not None:
            self._socket = tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def fileno(self) -> int:
        """The file descriptor, for the poller."""
        return self._socket.fileno()

    def shake_hands(self) -> Any:
        """Go on with the handshake of TLS; what it returns, or BLOCKED."""
        return self._attempt(EVENT_READ, self._socket.do_handshake)  # type: ignore[attr-defined]

    def receive(self, size: int) -> Any:
        """What the client has sent (empty: it sends no more), or BLOCKED. Raises OSError."""
        return self._attempt(EVENT_READ, self._socket.recv, size)

    def send(self, part: memoryview) -> Any:
        """How many bytes our kernel has taken, or BLOCKED. Raises OSError."""
        return self._attempt(EVENT_WRITE, self._socket.send, part)

    def wait_until(self, seconds: float) -> bool:
        """Whether the client does what `interest` says in time."""
        poller = select.poll()
        is_reading = self.interest == EVENT_READ
        poller.register(self._socket, select.POLLIN if is_reading else select.POLLOUT)
        return bool(poller.poll(max(0.0, seconds) * 1000))

    def count_unacknowledged(self) -> int:
        """Bytes that our kernel has taken and the client's machine has not acknowledged."""
        return count_unacknowledged(self._socket)

    def send_no_more(self) -> None:
        """Tell the client that nothing follows; it may go on sending."""
        with suppress(OSError, ValueError):
            if isinstance(self._socket, ssl.SSLSocket):
                self._socket.unwrap()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool) -> None:
        """With a reset the kernel does not go on sending."""
        if reset:
            with suppress(OSError):
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        with suppress(OSError):
            self._socket.close()

    def _attempt(self, interest: int, call: Callable[..., Any], *arguments: Any) -> Any:
        """What `call` returns, or BLOCKED: it would have to wait for `interest`."""
        try:
            return call(*arguments)
        except BlockingIOError:
            self.interest = interest
        except ssl.SSLWantReadError:
            self.interest = EVENT_READ
        except ssl.SSLWantWriteError:
            self.interest = EVENT_WRITE
        return BLOCKED


class Outbox:
    """An answer, as far as the client has not taken it; a file may be its rest. `broken`: the
    client is gone, or reads too slowly."""

    def __init__(self, sock: ClientSocket, clock: Callable[[], float]):
        self._socket = sock
        self._clock = clock
        self._parts: deque[memoryview] = deque()
        self._file: FileWrapper | None = None
        self._sent = 0  # bytes that our kernel took
        self.rate: ReadingRate | None = None
        """How fast the client reads, while it has something to read."""
        self.unsent = 0
        self.broken = False

    @property
    def is_incomplete(self) -> bool:
        """Whether the client will not get all of it."""
        return bool(self._parts) or self._file is not None or self.broken

    def add(self, data: bytes) -> None:
        self._parts.append(memoryview(data))
        self.unsent += len(data)

    def add_file(self, file: FileWrapper) -> None:
        """The rest of the answer, which is closed then."""
        self._file = file

    def flush(self) -> bool:
        """Send what the client takes now; whether nothing is left, but for a file. Raises
        OSError."""
        try:
            while self._parts:
                part = self._parts[0]
                sent = self._socket.send(part[:CHUNK])
                if sent is BLOCKED:
                    self.count_read()
                    return False
                self.unsent -= sent
                self._sent += sent
                if sent == len(part):
                    self._parts.popleft()
                else:
                    self._parts[0] = part[sent:]
        except OSError:
            self.broken = True
            raise
        if self._file is None:
            self.rate = None
        return True

    def is_file_sent(self) -> bool:
        """Whether nothing is left of the file. Of one that has more, the next piece is taken: a
        piece each time, so that the loop serves others, too, while a fast reader takes
        gigabytes."""
        if self._file is None:
            return True
        piece = self._file.filelike.read(CHUNK)
        if not piece:
            self.close_file()
            return True
        self.add(piece)
        self._socket.interest = EVENT_WRITE
        self.count_read()
        return False

    def close_file(self) -> None:
        if self._file is not None:
            self._file.filelike.close()
            self._file = None

    def count_read(self) -> ReadingRate:
        """What the client has read until now, and by when it must have read more."""
        now, taken = self._clock(), self._sent - self._socket.count_unacknowledged()
        if self.rate is None:
            self.rate = ReadingRate(now, taken)
        self.rate.count(taken, now)
        return self.rate

    def wait_for_reader(self) -> None:
        """Until there is room for more. Raises TimeoutError when the client reads too slowly."""
        rate = self.count_read()
        while not self._socket.wait_until(rate.deadline - self._clock()):
            rate = self.count_read()
            if rate.deadline <= self._clock():
                self.broken = True
                raise TimeoutError("the client is too slow")
