"""Receives state directly from other sites' agents, in pieces, each with the transfer's secret.

Anybody may connect, so connections are limited in number and in time. One that is refused costs
its sender little: the state then travels through the service.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from speck.agent.inbox import Arrival, GapError, Inbox
from speck.errors import PermanentError, SpeckError
from speck.tls.contexts import TlsFiles

PIECE_MOST = 4 << 20
CONNECTIONS_MOST = 32
"""Each has a thread."""
CONNECTIONS_MOST_OF_ONE = 16
"""From one address."""
_HEAD_S = 10.0
"""A new connection has sent a request with a valid secret by then; TLS is part of it."""
_PIECE_S = 120.0
"""The next piece has come by then, as a whole."""


class Listener:
    """Serves `PUT /transfers/<id>?offset=&total=`, for transfers that the service commanded."""

    def __init__(self, host: str, port: int, inbox: Inbox, tls: TlsFiles | None = None):
        try:
            self._server = _Server((host, port), inbox, tls)
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; give another --listen"
            ) from error
        self.host, self.port = host, self._server.server_address[1]
        self.scheme = "https" if tls else "http"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.5,), name="listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, up to a limit; a connection past its deadline is ended."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], inbox: Inbox, tls: TlsFiles | None):
        self.inbox = inbox
        self._tls = tls
        self._lock = threading.Lock()
        self._deadlines: dict[Any, float] = {}
        self._hosts: dict[Any, str] = {}
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or close it when there are too many."""
        host = str(client_address[0])
        with self._lock:
            from_host = Counter(self._hosts.values())[host]
            is_full = len(self._hosts) >= CONNECTIONS_MOST or from_host >= CONNECTIONS_MOST_OF_ONE
        if is_full:
            self.shutdown_request(request)
            return
        if self._tls is not None:  # the handshake follows in the connection's own thread
            try:
                request = self._tls.context().wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
            except OSError:  # it is closed already
                self.shutdown_request(request)
                return
        with self._lock:
            self._hosts[request] = host
            self._deadlines[request] = time.monotonic() + _HEAD_S
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection and close it."""
        with self._lock:
            self._hosts.pop(request, None)
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def extend(self, request: Any, seconds: float) -> None:
        """Give a connection so many seconds more from now on."""
        with self._lock:
            self._deadlines[request] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """End the connections that are past their deadline; called at least twice a second."""
        now = time.monotonic()
        with self._lock:
            overdue = [request for request, until in self._deadlines.items() if until < now]
        for request in overdue:
            # wakes the thread that waits for the socket; SSLSocket's own method would take away
            # what that thread uses
            with suppress(OSError):
                socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: strangers that break off, or speak no TLS, are no fault of the agent."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a response's body waits 40 ms for the head's ACK
    timeout = _PIECE_S
    server: _Server

    def setup(self) -> None:
        """Complete the handshake of TLS."""
        super().setup()
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()

    def do_PUT(self) -> None:
        """Receive a piece; the response holds the number of bytes received."""
        arrival, query = self._authorize()
        if arrival is None:
            return
        self.server.extend(self.request, _PIECE_S)
        try:
            length = int(self.headers["Content-Length"])
            offset, total = int(query["offset"][0]), int(query["total"][0])
        except (KeyError, TypeError, ValueError):
            self._answer(400, {"detail": "cannot read the request: offset, total, length"})
            return
        if not 0 <= length <= PIECE_MOST or offset < 0 or total < 1:
            self._answer(413, {"detail": f"cannot take {length} bytes in one piece"})
            return
        piece = self.rfile.read(length)
        if len(piece) < length:
            self.close_connection = True
            return
        try:
            received = self.server.inbox.append(arrival, offset, total, piece)
        except GapError as error:
            self._answer(409, {"detail": str(error), "received": error.received}, drained=True)
        except (SpeckError, OSError) as error:
            self._answer(507, {"detail": str(error)}, drained=True)
        else:
            self._answer(200, {"received": received}, drained=True)
        self.server.extend(self.request, _PIECE_S)

    def _authorize(self) -> tuple[Arrival | None, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        _, _, secret = self.headers.get("Authorization", "").partition(" ")
        transfer = parts.path.removeprefix("/transfers/")
        arrival = self.server.inbox.find(transfer, secret)
        if arrival is None:
            self._answer(403, {"detail": "cannot take this piece: no such transfer for this token"})
        return arrival, parse_qs(parts.query)

    def _answer(self, status: int, body: dict[str, Any], *, drained: bool = False) -> None:
        text = json.dumps(body).encode()
        if not drained:  # the rest of the body was not read, so the connection is unusable
            self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: pieces are too many to log."""
