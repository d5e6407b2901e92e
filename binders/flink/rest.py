"""A typed client of Flink's REST API: connections, time limits, errors; no decisions.

Thread-safe. It never repeats a request by itself, follows no redirect (a registered address must
not lead elsewhere), and uses no proxy of the environment. It uses urllib3 directly: `requests`
would add more CPU time than the rest of a call takes, and every poll of every site is a call.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from requests_toolbelt.multipart.encoder import MultipartEncoder
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ReadTimeoutError,
    TimeoutError,
)

from binders.flink.deadline import Deadline, TimedSocket
from binders.flink.failures import Refusal
from speck.binding import ignore_request
from speck.certificates import explain_alert, explain_refusal
from speck.errors import EngineRefusedError, UnreachableError
from speck.sites.credentials import Credentials, read_credentials, tls_context

CONNECTIONS = 16
"""Connections to one engine; further threads wait for a free one."""

LARGEST_ANSWER = 32 * 1024 * 1024
"""The most bytes of an answer."""

DEEPEST_ANSWER = 64
"""The most levels of objects and lists in an answer. Flink's own have fewer than ten."""

_CHUNK = 256 * 1024

Params = Mapping[str, str]


class RefusedAnswer(Exception):
    """Flink answered with an error. It never leaves this package: callers turn `refusal` into a
    SpeckError."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.reason)
        self.refusal = refusal


class NoAnswerInTimeError(UnreachableError):
    """The request was sent, and no answer has come within its time limit."""


class FlinkRest:
    """One Flink at `address`; a call may take `timeout_s` seconds by default. `on_request` and
    `credentials`: see `speck.binding.Target`. They are read for each new connection over TLS."""

    def __init__(
        self,
        address: str,
        timeout_s: float = 10.0,
        on_request: Callable[[], None] = ignore_request,
        credentials: Path | None = None,
    ):
        self._credentials = credentials
        self._address = address.rstrip("/")
        self._timeout_s = timeout_s
        parts = urlsplit(self._address)
        self._prefix = parts.path
        self._deadline = Deadline()
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            self._pool: HTTPConnectionPool = _TlsPool(host, port, self._tls_context, self._deadline)
        else:
            self._pool = _Pool(host, port, on_request, self._deadline)

    @property
    def address(self) -> str:
        return self._address

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All calls that this thread makes inside end within `seconds`."""
        with self._deadline.within(seconds):
            yield

    def get(self, path: str, params: Params | None = None) -> Any:
        """JSON of a GET. Raises RefusedAnswer or UnreachableError."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """JSON of a POST. Raises RefusedAnswer or UnreachableError."""
        return self._call("POST", path, body=json.dumps(body).encode(), timeout_s=timeout_s)

    def patch(self, path: str, params: Params) -> Any:
        """JSON of a PATCH. Raises RefusedAnswer or UnreachableError."""
        return self._call("PATCH", path, params=params)

    def delete(self, path: str) -> Any:
        """JSON of a DELETE. Raises RefusedAnswer or UnreachableError."""
        return self._call("DELETE", path)

    def upload(self, path: str, file: Path, name: str, *, timeout_s: float) -> Any:
        """Send `file` as the only part, named `name`; streamed, so that memory use is constant.

        Raises RefusedAnswer, UnreachableError, or EngineRefusedError if the file cannot be read.
        """
        try:
            with file.open("rb") as content:
                part = (name, content, "application/java-archive")
                body = MultipartEncoder({"jarfile": part})
                return self._call(
                    "POST", path, body=body, timeout_s=timeout_s, content_type=body.content_type
                )
        except OSError as error:
            raise EngineRefusedError(f"cannot upload {file}: {error.strerror}") from error

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | MultipartEncoder | None = None,
        timeout_s: float | None = None,
        content_type: str = "application/json",
    ) -> Any:
        limit = timeout_s if timeout_s is not None else self._timeout_s
        with self._deadline.within(limit):
            return self._exchange(method, path, params, body, limit, content_type)

    def _exchange(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | MultipartEncoder | None,
        limit: float,
        content_type: str,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            size = len(body) if isinstance(body, bytes) else body.len  # else it is sent chunked
            headers |= {"Content-Type": content_type, "Content-Length": str(size)}
        response = None
        try:
            response = self._pool.urlopen(
                method,
                self._prefix + path + (f"?{urlencode(params)}" if params else ""),
                body,
                headers,
                retries=False,
                redirect=False,
                timeout=Timeout(connect=min(limit, self._timeout_s), read=limit),
                preload_content=False,
            )
            text = _read(response)
            return self._decode(response.status, text)
        except (HTTPError, OSError) as error:
            is_sent = isinstance(error, ReadTimeoutError)
            kind = NoAnswerInTimeError if is_sent else UnreachableError
            raise kind(
                f"cannot reach the engine at {self._address}: {self._explain(error)}"
            ) from error
        finally:
            if response is not None:
                response.close()  # a response that was read completely is back in the pool already
                response.release_conn()

    def _read_credentials(self) -> Credentials:
        if self._credentials is None:
            return Credentials()
        return read_credentials(self._credentials, self._address, EngineRefusedError)

    def _tls_context(self) -> ssl.SSLContext:
        return tls_context(self._read_credentials(), "http")

    def _explain(self, error: Exception) -> str:
        if not isinstance(self._pool, HTTPSConnectionPool):
            return _why(error)
        refusal = explain_refusal(error, self._pool.host, self._pool.port or 443)
        return refusal or explain_alert(error, own=self._read_credentials().cert) or _why(error)

    def _decode(self, status: int, text: bytes) -> Any:
        try:
            _refuse_deep(text)
            answer = json.loads(text) if text else {}
        except (ValueError, RecursionError):
            answer = None
        if 200 <= status < 300 and answer is not None:
            return answer
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if status >= 400 and isinstance(errors, list):
            # Flink's first line has no information if a second one follows
            lines = [str(each) for each in errors if each]
            raise RefusedAnswer(Refusal(status, "\n".join(lines[1:] or lines)))
        # A redirect, or a page of a proxy, says nothing about the engine behind it.
        raise UnreachableError(
            f"cannot reach the engine at {self._address}: HTTP {status} is no answer of Flink's;"
            " check the site's address"
        )


class _Connection(HTTPConnection):
    """Calls `on_request` when a request that may change something has been sent."""

    deadline = Deadline()
    on_request: Callable[[], None] = staticmethod(ignore_request)
    _method = ""

    def connect(self) -> None:
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self.deadline)

    def putrequest(self, method: str, *args: Any, **kwargs: Any) -> None:
        self._method = method
        super().putrequest(method, *args, **kwargs)

    def getresponse(self) -> Any:
        if self._method != "GET":
            self.on_request()
        return super().getresponse()


class _TlsConnection(HTTPSConnection):
    deadline = Deadline()

    def connect(self) -> None:
        super().connect()
        self.sock: Any = TimedSocket(self.sock, self.deadline)


class _Pool(HTTPConnectionPool):
    def __init__(
        self, host: str, port: int | None, on_request: Callable[[], None], deadline: Deadline
    ) -> None:
        super().__init__(host, port, maxsize=CONNECTIONS, block=True)
        hooked = {"on_request": staticmethod(on_request), "deadline": deadline}
        self.ConnectionCls = type("_HookedConnection", (_Connection,), hooked)


class _TlsPool(HTTPSConnectionPool):
    """Asks for the context of each new connection: certificates are renewed while it is open."""

    def __init__(
        self,
        host: str,
        port: int | None,
        context: Callable[[], ssl.SSLContext],
        deadline: Deadline,
    ) -> None:
        super().__init__(host, port, maxsize=CONNECTIONS, block=True)
        self._context = context
        self.ConnectionCls = type("_TimedConnection", (_TlsConnection,), {"deadline": deadline})

    def _new_conn(self) -> Any:
        self.conn_kw["ssl_context"] = self._context()
        return super()._new_conn()


def _read(response: BaseHTTPResponse) -> bytes:
    parts = []
    size = 0
    for chunk in response.stream(_CHUNK):
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise HTTPError(f"its answer exceeds {LARGEST_ANSWER} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _refuse_deep(text: bytes) -> None:
    """Raise ValueError for JSON of too many levels: what is read of it later may be copied and
    written by recursion. Brackets within texts count as well, which no answer of Flink's notices.
    """
    brackets = text.translate(None, _NO_BRACKETS)
    if max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > DEEPEST_ANSWER:
        raise ValueError(f"it has more than {DEEPEST_ANSWER} levels")


_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _LEVELS.keys())


def _why(error: BaseException) -> str:
    """The innermost reason in a few words: the outer layers quote object addresses."""
    is_refused = isinstance(error, NewConnectionError)  # urllib3 counts it among the timeouts
    if isinstance(error, ConnectTimeoutError) and not is_refused:
        return "no connection in time"
    if isinstance(error, TimeoutError) and not is_refused:
        return "no answer in time"
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return str(inner)[:200] or type(inner).__name__
