"""Receives state directly from other sites' agents, in pieces, each with the transfer's secret."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from speck.agent.inbox import Arrival, GapError, Inbox
from speck.errors import PermanentError, SpeckError

PIECE_MOST = 4 << 20
_IDLE_S = 120.0


class Listener:
    """Serves `PUT /transfers/<id>?offset=&total=`, for transfers that the service commanded."""

    def __init__(self, host: str, port: int, inbox: Inbox):
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; give another --listen"
            ) from error
        self._server.inbox = inbox
        self.host, self.port = host, self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.5,), name="listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    inbox: Inbox


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a response's body waits 40 ms for the head's ACK
    timeout = _IDLE_S
    server: _Server

    def do_PUT(self) -> None:
        """Receive a piece; the response holds the number of bytes received."""
        arrival, query = self._authorize()
        if arrival is None:
            return
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
