"""A small HTTP client: one persistent connection, JSON, no redirects; standard library only."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from speck.errors import PermanentError, UnreachableError
from speck.tls.contexts import TlsFiles

Json = dict[str, Any]

MAX_ANSWER = 16 << 20
"""Bytes that are read of an answer; a piece of state has 4 MiB at most."""


class Caller:
    """Calls one server. Not thread-safe: use one for each thread.

    `tls` is used for `https`; without it, the authorities of this machine are trusted.
    """

    def __init__(
        self, url: str, token: Callable[[], str | None], tls: TlsFiles | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PermanentError(f"cannot call {url!r}: give an address like http://host:8080")
        self.url = url
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._is_https = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._tls = tls
        self._connection = self._make_connection()

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout_s: float = 10.0,
        media: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """The status and body of the response; `timeout_s` limits each wait, not the whole call.

        Raises UnreachableError.
        """
        all_headers = {"Accept": "application/json", **(headers or {})}
        secret = self._token()
        if secret:
            all_headers["Authorization"] = f"Bearer {secret}"
        if body is not None:
            all_headers["Content-Type"] = media
        fresh = self._connection.sock is None
        try:
            return self._ask(method, path, body, all_headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            # the server may just have closed the persistent connection
            if not fresh and not isinstance(error, TimeoutError):
                try:
                    return self._ask(method, path, body, all_headers, timeout_s)
                except (OSError, http.client.HTTPException) as again:
                    error = again
            raise self._unreachable(error) from error

    def connect(self, timeout_s: float) -> None:
        """Connect before a large body is sent. Raises UnreachableError."""
        self._connection.close()
        self._connection = self._make_connection()
        self._connection.timeout = timeout_s
        try:
            self._connection.connect()
        except OSError as error:
            self._connection.close()
            raise self._unreachable(error) from error

    def json(
        self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **more: Any
    ) -> tuple[int, Json]:
        """Like `call`, with the response parsed as JSON; anything but a JSON object counts as
        empty. The body is `body` as JSON, or `raw`."""
        content = json.dumps(body).encode() if body is not None else raw
        status, answer = self.call(method, path, content, **more)
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError):
            data = {}
        return status, data if isinstance(data, dict) else {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        if self._connection.sock is None:
            self._connection = self._make_connection()  # with certificates as they are now
        else:
            self._connection.sock.settimeout(timeout_s)
        self._connection.timeout = timeout_s
        try:
            self._connection.request(method, self._prefix + path, body, headers)
            answer = self._connection.getresponse()
            content = answer.read(MAX_ANSWER + 1)
            if len(content) > MAX_ANSWER:
                raise UnreachableError(
                    f"cannot read the answer of {self.url}: it has more than"
                    f" {MAX_ANSWER >> 20} MiB; is it a speck service?"
                )
            return answer.status, content
        except BaseException:
            self._connection.close()
            raise

    def _make_connection(self) -> http.client.HTTPConnection:
        if not self._is_https:
            return http.client.HTTPConnection(self._host, self._port)
        context = self._tls.context() if self._tls else None
        return http.client.HTTPSConnection(self._host, self._port, context=context)

    def _unreachable(self, error: Exception) -> UnreachableError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnreachableError(
                f"cannot trust {self.url}: {error.verify_message}; give --ca with the authority"
                " that signed its certificate, and the URL with a name that stands in it"
            )
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return UnreachableError(f"cannot reach {self.url}: {why}")
