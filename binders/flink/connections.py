"""The connections to one engine that are kept open, and one exchange over one of them.

They are `http.client`'s: urllib3 takes more CPU time for a small answer, and each poll of each site
takes a dozen exchanges.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import (
    HTTP_PORT,
    HTTPS_PORT,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
)
from queue import Empty, LifoQueue
from typing import Any
from urllib.parse import quote

from binders.flink.deadline import Deadline, TimedSocket
from speck.binding import ignore_request

CONNECTIONS = 16
"""Connections to one engine; further threads wait for a free one."""

_UPLOAD_BLOCK = 64 * 1024
_IN_TARGETS = "/?&=%:@!$'()*+,;~"


class ExchangeTimeoutError(TimeoutError):
    """An exchange has exceeded its time limit. `is_sent`: the request had been sent."""

    def __init__(self, reason: str, *, is_sent: bool = False):
        super().__init__(reason)
        self.is_sent = is_sent


class Connections:
    """At most `CONNECTIONS` to `host`, over TLS if there is a `context`: it is asked for anew for
    each connection, since certificates are renewed. `on_request`: see `speck.binding.Target`.

    Thread-safe. No request is repeated; a kept connection that the engine has closed is replaced
    before it is used.
    """

    def __init__(
        self,
        host: str,
        port: int | None,
        deadline: Deadline,
        on_request: Callable[[], None] = ignore_request,
        context: Callable[[], ssl.SSLContext] | None = None,
    ):
        self.host = host
        self.port = port or (HTTPS_PORT if context else HTTP_PORT)
        self._deadline = deadline
        self._on_request = on_request
        self._context = context
        self._is_closed = False
        self._free: LifoQueue[Any] = LifoQueue()
        for _ in range(CONNECTIONS):
            self._free.put(None)  # a connection that is not open yet

    def exchange(
        self,
        method: str,
        target: str,
        body: Any,
        headers: Mapping[str, str],
        connect_s: float,
        most_bytes: int,
    ) -> tuple[int, bytes]:
        """The status and the content of the answer, which may have `most_bytes`. `body` is bytes,
        or is read in blocks.

        Raises OSError, among them ExchangeTimeoutError, HTTPException or UnicodeError.
        """
        with self._sending(self._await_free(), method, target, body, headers, connect_s) as receive:
            return receive(most_bytes)

    def get_both(
        self,
        first: tuple[str, int],
        second: tuple[str, int],
        headers: Mapping[str, str],
        connect_s: float,
    ) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
        """The answers to two GETs, each of a target and the most bytes of its answer; both are sent
        before either is awaited. Raises as `exchange`."""
        (target, most_bytes), (second_target, second_most) = first, second
        with self._sending(
            self._await_free(), "GET", target, None, headers, connect_s
        ) as receive_first:
            try:
                free = self._free.get_nowait()
            except Empty:  # to wait while holding a connection could take forever
                answer = receive_first(most_bytes)
            else:
                with self._sending(
                    free, "GET", second_target, None, headers, connect_s
                ) as receive_second:
                    return receive_first(most_bytes), receive_second(second_most)
        return answer, self.exchange("GET", second_target, None, headers, connect_s, second_most)

    def close(self) -> None:
        """Close the connections, those in use as soon as they have their answer; open no more."""
        self._is_closed = True
        ended = []
        with suppress(Empty):
            while True:
                ended.append(self._free.get_nowait())
        for connection in ended:
            if connection is not None:
                connection.close()
            self._free.put(None)

    def _await_free(self) -> Any:
        try:
            return self._free.get(timeout=self._deadline.remaining_s())
        except Empty:
            raise ExchangeTimeoutError("no free connection in time") from None

    @contextmanager
    def _sending(
        self,
        connection: Any,
        method: str,
        target: str,
        body: Any,
        headers: Mapping[str, str],
        connect_s: float,
    ) -> Iterator[Callable[[int], tuple[int, bytes]]]:
        """Send a request on a free connection; what is yielded receives its answer. Afterwards the
        connection is free again: open if the answer was received."""
        is_reusable = False

        def receive(most_bytes: int) -> tuple[int, bytes]:
            nonlocal is_reusable
            answer = _receive(connection, most_bytes)
            is_reusable = connection.sock is not None
            return answer

        try:
            if connection is None or not _is_silent(connection.sock):
                if connection is not None:
                    connection.close()
                connection = self._connect(connect_s)
            self._send(connection, method, target, body, headers)
            yield receive
        finally:
            if connection is not None and not is_reusable:
                connection.close()
            self._free.put(connection if is_reusable else None)
            if self._is_closed:
                self.close()

    def _connect(self, timeout_s: float) -> Any:
        if self._is_closed:
            raise ConnectionError("its connections are closed")
        remaining = self._deadline.remaining_s()
        limit = timeout_s if remaining is None else min(timeout_s, remaining)
        if self._context is None:
            connection: Any = HTTPConnection(self.host, self.port, limit, blocksize=_UPLOAD_BLOCK)
        else:
            context = self._context()
            context.set_alpn_protocols(["http/1.1"])
            connection = HTTPSConnection(
                self.host, self.port, timeout=limit, blocksize=_UPLOAD_BLOCK, context=context
            )
        try:
            connection.connect()
        except TimeoutError as error:
            connection.close()
            raise ExchangeTimeoutError("no connection in time") from error
        except BaseException:
            connection.close()
            raise
        connection.sock = TimedSocket(connection.sock, self._deadline)
        return connection

    def _send(
        self,
        connection: HTTPConnection,
        method: str,
        target: str,
        body: Any,
        headers: Mapping[str, str],
    ) -> None:
        # An engine that takes no more of a request may have answered it, and said why.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, quote(target, _IN_TARGETS), body, headers)
        if method != "GET":
            self._on_request()


def _is_silent(sock: TimedSocket) -> bool:
    """Whether nothing has come over an idle connection: neither its end, nor what nobody asked for.

    A look into what the kernel has received, below TLS, without waiting; `select.poll` would be as
    good, but under gevent takes ten times as long.
    """
    sock.settimeout(0)
    try:
        socket.socket.recv(sock.sock, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _receive(connection: HTTPConnection, most_bytes: int) -> tuple[int, bytes]:
    try:
        with connection.getresponse() as response:
            return response.status, _read(response, most_bytes)
    except TimeoutError as error:
        raise ExchangeTimeoutError("no answer in time", is_sent=True) from error


def _read(response: HTTPResponse, most_bytes: int) -> bytes:
    if response.length is None:  # it comes in chunks, or ends with the connection
        content = response.read(most_bytes + 1)
        size = len(content)
    else:
        size = response.length
        content = response.read() if size <= most_bytes else b""
    if size > most_bytes:
        raise HTTPException(f"its answer exceeds {most_bytes} bytes")
    return content
