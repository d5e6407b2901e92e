"""What the client takes of a service at most: whatever answers in its place must not use up this
machine's memory, or its user's day.

Time is limited for an answer as a whole, not from byte to byte. Bodies are read as they are sent:
the service compresses nothing, and a gigabyte of zeros in a megabyte is nobody's answer.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

MAX_ANSWER = 64 * 2**20
"""Bytes of an answer in JSON; 10 000 jobs have about 10 MB."""

MAX_LIST = 4 * MAX_ANSWER
"""Bytes of all pages of a list."""

_CHUNK = 1 << 16


class TooLargeError(ValueError):
    """An answer that is larger than any of a speck service, or compressed."""


@dataclass(slots=True)
class Deadline:
    """The end of the time for the current answer, in seconds of the monotonic clock."""

    until: float = float("inf")

    def limit_read(self, sock: socket.socket) -> None:
        """Let the next read of a socket end at the deadline. Raises TimeoutError after it."""
        remaining_s = self.until - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("timed out")
        if remaining_s < float("inf"):
            sock.settimeout(remaining_s)


class _TimedReader(io.RawIOBase):
    """Reads a response from its socket, within a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline):
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._deadline.limit_read(self._sock)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class BoundedAdapter(HTTPAdapter):
    """Connections whose responses end, headers included, at `deadline`."""

    def __init__(self, deadline: Deadline):
        self._deadline = deadline
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Called by requests once."""
        super().init_poolmanager(*args, **kwargs)
        deadline = self._deadline

        class Response(http.client.HTTPResponse):
            def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any):
                super().__init__(sock, *args, **kwargs)
                raw = self.fp.detach()
                self.fp = io.BufferedReader(_TimedReader(raw, sock, deadline))

        class Plain(HTTPConnection):
            response_class = Response

        class Secure(HTTPSConnection):
            response_class = Response

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        pools = {"http": PlainPool, "https": SecurePool}
        self.poolmanager.pool_classes_by_scheme = pools


def refuse_compressed(answer: requests.Response) -> None:
    """Raises TooLargeError for an answer that only shows its size when it is unpacked."""
    encoding = answer.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise TooLargeError(f"it is compressed ({encoding[:20]!r}), which was not asked for")


def read_body(answer: requests.Response, most: int = MAX_ANSWER) -> bytes:
    """The body of an answer. Raises TooLargeError, and what requests raises."""
    refuse_compressed(answer)
    body = bytearray()
    for piece in answer.iter_content(_CHUNK):
        body += piece
        if len(body) > most:
            raise TooLargeError(f"it has more than {most // 2**20} MiB")
    return bytes(body)
