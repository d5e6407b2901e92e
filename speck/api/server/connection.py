"""One client's connection to the service, which never makes the worker's loop wait.

The loop (`speck.api.server.worker`) drives it through `Connection.advance` while the client sends a
request or reads an answer; a file that is the answer is sent from there, piece by piece. In between
a thread of the pool has it: gunicorn's parser and response use it there in place of a socket
(`recv`, `sendall`).
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from enum import Enum, auto
from threading import BoundedSemaphore
from typing import Any

from gunicorn.http.errors import (  # type: ignore[import-untyped]
    InvalidRequestLine,
    LimitRequestHeaders,
)
from gunicorn.http.message import Request  # type: ignore[import-untyped]
from gunicorn.http.unreader import SocketUnreader  # type: ignore[import-untyped]
from gunicorn.http.wsgi import FileWrapper  # type: ignore[import-untyped]

from speck.api.server.minimum_rates import (
    BODY_BYTES,
    BODY_S,
    READ_GRACE_S,
    BodyRate,
)
from speck.api.server.outbox import BLOCKED, CHUNK, ClientSocket, Outbox
from speck.errors import InvalidError, TransientError

HEAD_S = 10.0
"""Time for the headers of a request: from the connection on, or from their first byte."""

KEEPALIVE_S = 15.0
"""How long a connection may wait for its next request."""

LINGER_S = 2.0
"""How long a client may go on sending after its last answer; closing at once could destroy it."""

MAX_HEAD = 64 * 1024
MAX_COLLECTED = 1024 * 1024
"""Largest body that the loop collects before a thread is taken."""

HIGH_WATER = 1024 * 1024
"""Unsent bytes of an answer past which its thread waits before it adds more."""

MAX_LINGERING = 1024 * 1024
_HEAD_CHUNK = 16 * 1024
_END = b"\r\n\r\n"
_TLS_HELLO = b"\x16\x03"


class Stage(Enum):
    """What a connection does; all but ANSWERING wait for the client."""

    HANDSHAKE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    SENDING = auto()
    CLOSING = auto()
    CLOSED = auto()


class _Request(Request):  # type: ignore[misc]
    """A request whose connection closes if the rest of its body has not arrived: nobody waits for
    it, and where the next request begins is unknown."""

    def should_close(self) -> bool:
        return bool(super().should_close() or self.unreader.sock.lacks_body)


class Connection:
    """A client's socket with what arrived and what is still to be sent.

    `slots` limits how many threads may wait for bodies at once. `since` is when the current stage
    began, `deadline` when it must be over; both are seconds of the monotonic clock. `watch` is what
    the poller waits for already (0: nothing).
    """

    def __init__(
        self,
        sock: socket.socket,
        client: Any,
        server: Any,
        cfg: Any,
        slots: BoundedSemaphore,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.client = client
        self.server = server
        self.request: Any = None
        self.watch = 0
        self._cfg = cfg
        self._slots = slots
        self._clock = clock
        self._inbox = bytearray()
        self._scan_from = 0
        self._remaining = 0  # bytes that still belong to this request's head or body
        self._in_thread = False
        self._holds_slot = False
        self._at_end = False  # the client sends no more
        self._late = False
        self._expects_continue = False
        self._body_rate = BodyRate(0.0)
        self._keep = True
        self._surplus = 0
        self._enter(Stage.HEAD, HEAD_S)
        if tls is not None:
            self.stage = Stage.HANDSHAKE
        self._socket = ClientSocket(sock, tls)
        self._outbox = Outbox(self._socket, clock)

    def fileno(self) -> int:
        """The file descriptor, for the poller."""
        return self._socket.fileno()

    @property
    def interest(self) -> int:
        """What the poller is to wait for."""
        return self._socket.interest

    @property
    def unsent(self) -> int:
        """Bytes of the answer that are in memory."""
        return self._outbox.unsent

    @property
    def broken(self) -> bool:
        """Whether the client is gone, or reads too slowly."""
        return self._outbox.broken

    @property
    def idle(self) -> bool:
        """Whether no byte of the next request has arrived."""
        return self.stage is Stage.HEAD and not self._inbox

    @property
    def size_to_collect(self) -> int:
        """Size of the body that is being collected, as far as it is not yet in a thread."""
        return self._remaining if self.stage is Stage.BODY else 0

    @property
    def lacks_body(self) -> bool:
        """Whether a part of the request's body has not arrived."""
        return self._remaining > len(self._inbox)

    # -- in the loop ----------------------------------------------------------------------

    def advance(self, may_collect: Callable[[int], bool] = lambda size: True) -> None:
        """Go on as far as possible without waiting, until a request is there (ANSWERING) or the
        client must do something (`interest`). `may_collect`: whether there is memory for a body.

        Raises OSError when the client is gone or breaks TLS, and gunicorn's parse errors.
        """
        if self.stage is Stage.HANDSHAKE:
            if self._socket.shake_hands() is BLOCKED:
                return
            self.stage = Stage.HEAD
        if self.stage is Stage.SENDING:
            if self._outbox.flush() and self._outbox.is_file_sent():
                self._begin_next()
            elif self._outbox.rate is not None:
                self.deadline = self._outbox.rate.deadline
        while self.stage in (Stage.HEAD, Stage.BODY):
            if self._is_request_there(may_collect):
                self._enter(Stage.ANSWERING, float("inf"))
                self._in_thread = True
            elif not self._receive():
                return
        while self.stage is Stage.CLOSING and self._discard():
            pass

    def give_up_body(self) -> None:
        """The body did not arrive in time. The request is answered even so: it may be one that is
        refused whatever its body."""
        self._late = self._in_thread = True
        self._enter(Stage.ANSWERING, float("inf"))

    def finish(self, keep: bool) -> None:
        """The answer is complete, sent or not. `keep`: another request may follow."""
        if self._holds_slot:
            self._slots.release()
        self._in_thread = self._holds_slot = False
        self._keep = keep and not self.lacks_body and not self.broken
        self._enter(Stage.SENDING, READ_GRACE_S)

    def is_read(self) -> bool:
        """Whether the client reads its answer fast enough, though the deadline has passed: by what
        its machine has acknowledged meanwhile."""
        if self.stage is not Stage.SENDING:
            return False
        self.deadline = self._outbox.count_read().deadline
        return self._clock() < self.deadline

    def close(self) -> None:
        """Close the socket (CLOSED alone does not); what is unsent is dropped."""
        self.stage = Stage.CLOSED
        # a reset: by an orderly end, half an answer without a length would look whole
        is_incomplete = self._outbox.is_incomplete
        self._outbox.close_file()
        self._socket.close(reset=is_incomplete)

    def _enter(self, stage: Stage, seconds: float) -> None:
        self.stage = stage
        self.since = self._clock()
        self.deadline = self.since + seconds

    def _is_request_there(self, may_collect: Callable[[int], bool]) -> bool:
        if self.stage is Stage.BODY:
            return not self.lacks_body or self._at_end
        # from where the last look ended: a head that comes byte by byte is scanned once; its end
        # may lie across two reads
        end = self._inbox.find(_END, max(0, self._scan_from - len(_END)))
        self._scan_from = len(self._inbox)
        if end < 0:
            if self._inbox.startswith(_TLS_HELLO):  # its client waits for an answer in TLS
                raise InvalidRequestLine("TLS on a port without TLS")
            if self._scan_from > MAX_HEAD:
                raise LimitRequestHeaders(f"longer than {MAX_HEAD} bytes")
            return False
        self._parse(end + len(_END))
        if not self.lacks_body or self._expects_continue:
            return True
        if self._remaining > MAX_COLLECTED or not may_collect(self._remaining):
            return True
        self._body_rate = BodyRate(self._clock())
        self._enter(Stage.BODY, BODY_S)
        return False

    def _parse(self, size: int) -> None:
        """Let gunicorn read the head, which has `size` bytes, and no more."""
        self._remaining = size
        self.request = _Request(self._cfg, SocketUnreader(self), self.client)
        length = getattr(self.request.body.reader, "length", None)
        if length is None:  # a chunked body: every route refuses it
            self.request.force_close()
        self._remaining = length or 0
        # "100 Continue" is sent when the application wants the body: a refused upload need not
        # be sent at all.
        self._expects_continue = self.request._expected_100_continue
        self.request._expected_100_continue = False

    def _receive(self) -> bool:
        missing = self._remaining - len(self._inbox) if self.stage is Stage.BODY else _HEAD_CHUNK
        data = self._socket.receive(min(missing, CHUNK))
        if data is BLOCKED:
            return False
        if not data:
            self._at_end = True
            if self.stage is Stage.HEAD:
                self.stage = Stage.CLOSED
            return True
        if self.idle and self.request is not None:
            self._enter(Stage.HEAD, HEAD_S)
        self._inbox += data
        if self.stage is Stage.BODY:
            self._body_rate.count(len(data), self._clock())
            self.deadline = self._body_rate.deadline
        return True

    def _begin_next(self) -> None:
        """The answer is sent: wait for the next request, or close."""
        if self._keep:
            del self._inbox[: self._remaining]  # a body that nobody read
            self._scan_from = self._remaining = 0
            self._enter(Stage.HEAD, HEAD_S if self._inbox else KEEPALIVE_S)
            return
        # bytes that arrive at a closed socket are answered with a reset, and the client may lose
        # the answer by it: what it still sends is read and thrown away
        self._enter(Stage.CLOSING, LINGER_S)
        self._inbox.clear()
        self._socket.send_no_more()

    def _discard(self) -> bool:
        data = self._socket.receive(CHUNK)
        if data is BLOCKED:
            return False
        self._surplus += len(data)
        if not data or self._surplus > MAX_LINGERING:
            self.stage = Stage.CLOSED
        return True

    # -- in a thread, in place of a socket ------------------------------------------------

    def recv(self, size: int) -> bytes:
        """The next bytes of the request's head or body; empty when there are no more.

        Raises InvalidError (408) when the body comes too slowly, TransientError when too many
        threads wait for bodies already.
        """
        size = min(size, self._remaining)
        if size == 0 or (not self._inbox and not self._in_thread):
            return b""
        if self._inbox:
            data = bytes(self._inbox[:size])
            del self._inbox[:size]
        else:
            data = self._wait_for_body(size)
        self._remaining -= len(data)
        return data

    def sendall(self, data: bytes) -> None:
        """Send, or keep what the client does not take at once for the loop to send.

        Raises OSError when the client is gone or reads too slowly.
        """
        while self.unsent > HIGH_WATER and not self._outbox.flush():
            self._outbox.wait_for_reader()
        self._outbox.add(data)
        self._outbox.flush()

    send = sendall

    def send_file(self, file: FileWrapper) -> None:
        """Leave the rest of the answer to the loop: the content of `file`, which is closed then."""
        self._outbox.add_file(file)

    def _wait_for_body(self, size: int) -> bytes:
        if self._at_end:
            return b""
        self._take_slot()
        if self._expects_continue:
            self._expects_continue = False
            self.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            while (data := self._socket.receive(size)) is BLOCKED:
                if not self._socket.wait_until(self._body_rate.deadline - self._clock()):
                    raise TimeoutError("the client is too slow")
        except TimeoutError as error:
            self._late = True
            raise _too_slow() from error
        except OSError:
            data = b""
        self._at_end = not data
        self._body_rate.count(len(data), self._clock())
        return bytes(data)

    def _take_slot(self) -> None:
        if self._late:
            raise _too_slow()
        if self._holds_slot:
            return
        if not self._slots.acquire(blocking=False):
            raise TransientError(
                "cannot take another upload now: too many arrive at once; send it again later"
            )
        self._holds_slot = True
        self._body_rate = BodyRate(self._clock())


def _too_slow() -> InvalidError:
    return InvalidError(
        f"cannot take this body: fewer than {BODY_BYTES} bytes arrived within {BODY_S:g} s; send it"
        " again over a faster connection",
        status=408,
    )
