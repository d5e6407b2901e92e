"""A typed client of Flink's REST API: connections, time limits, errors; no decisions.

Thread-safe. It never repeats a request by itself, follows no redirect (a registered address must
not lead elsewhere), and uses no proxy of the environment.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
from requests_toolbelt.multipart.encoder import MultipartEncoder

from binders.flink.connections import Connections, ExchangeTimeoutError
from binders.flink.deadline import Deadline
from binders.flink.failures import Refusal, cut_middle
from speck.binding import ignore_request
from speck.errors import EngineRefusedError, UnreachableError
from speck.sites.credentials import Credentials, read_credentials
from speck.spec.json_size import has_more_values, without_texts
from speck.tls.certificates import explain_alert, explain_refusal

_ACCEPT = {"Accept": "application/json"}
DEEPEST_ANSWER = 64
"""The most levels of objects and lists in an answer. Flink's own have fewer than ten."""

Params = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most bytes of an answer, and values, keys included."""

    bytes: int
    values: int


OF_SETTINGS = Bounds(256 * 1024, 10_000)
"""Versions, slots, settings, and small logs: Flink's own have some kB."""
OF_LISTS = Bounds(4 * 1024 * 1024, 400_000)
"""Jobs, workers and metrics: ten thousand jobs have 380 000 values."""
USUAL = Bounds(4 * 1024 * 1024, 50_000)
"""One job, with its checkpoints or failures: stack traces are long."""
_KINDS = (
    (re.compile(r"/overview|/jobmanager/config|/jobs/\w+/checkpoints/config"), OF_SETTINGS),
    (re.compile(r"/(jobmanager|taskmanagers/[^/]+)/logs(/[^/]+)?"), OF_SETTINGS),
    (re.compile(r"/jobs/overview|/jars|/taskmanagers|/jobs/.*/metrics(\?.*)?"), OF_LISTS),
)
LONGEST_ERROR = 64 * 1024
"""The most characters kept of an error: its beginning, and its end, where the reason is."""


def bounds_of(path: str) -> Bounds:
    """The bounds of the answer to a request for `path`."""
    return next((bounds for kind, bounds in _KINDS if kind.fullmatch(path)), USUAL)


class RefusedAnswer(Exception):
    """Flink answered with an error. It never leaves this package: callers turn `refusal` into a
    SpeckError."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.reason)
        self.refusal = refusal


class _TooLargeError(Exception):
    """An answer would take too much memory once it is parsed."""


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
        context = self._tls_context if parts.scheme == "https" else None
        self._connections = Connections(
            parts.hostname or "", parts.port, self._deadline, on_request, context
        )

    @property
    def address(self) -> str:
        return self._address

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All calls that this thread makes inside end within `seconds`."""
        with self._deadline.within(seconds):
            yield

    def get(self, path: str) -> Any:
        """JSON of a GET; `path` may have a query. Raises RefusedAnswer or UnreachableError."""
        return self._call("GET", path)

    def find(self, path: str) -> Mapping[str, Any] | None:
        """JSON of a GET about a job; None if Flink answers that it knows no such job."""
        try:
            answer: Mapping[str, Any] = self.get(path)
            return answer
        except RefusedAnswer as refused:
            if refused.refusal.status == 404 and refused.refusal.job_unknown:
                return None
            raise

    def get_text(self, path: str) -> str:
        """The text of a file. Raises RefusedAnswer or UnreachableError."""
        with self._deadline.within(self._timeout_s), self._explaining():
            most = bounds_of(path).bytes
            status, content = self._connections.exchange(
                "GET", self._prefix + path, None, {}, self._timeout_s, most
            )
        text = content.decode(errors="replace")
        if status != HTTPStatus.OK:
            raise RefusedAnswer(Refusal(status, cut_middle(text, LONGEST_ERROR)))
        return text

    def get_both(self, first: str, second: str) -> tuple[Any, Any]:
        """JSON of two GETs that are both sent before either is answered. Raises RefusedAnswer or
        UnreachableError."""
        with self._deadline.within(self._timeout_s), self._explaining():
            answers = self._connections.get_both(
                (self._prefix + first, bounds_of(first).bytes),
                (self._prefix + second, bounds_of(second).bytes),
                {**_ACCEPT},
                self._timeout_s,
            )
        return self._decode(*answers[0], first), self._decode(*answers[1], second)

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
        self._connections.close()

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
        target = self._prefix + path + (f"?{urlencode(params)}" if params else "")
        headers = {**_ACCEPT}
        if body is not None:
            size = len(body) if isinstance(body, bytes) else body.len  # else it is sent chunked
            headers |= {"Content-Type": content_type, "Content-Length": str(size)}
        with self._explaining():
            connect_s = min(limit, self._timeout_s)
            status, text = self._connections.exchange(
                method, target, body, headers, connect_s, bounds_of(path).bytes
            )
        return self._decode(status, text, path)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say of what fails inside which engine cannot be reached, and why."""
        try:
            yield
        except (HTTPException, OSError, UnicodeError) as error:
            is_sent = isinstance(error, ExchangeTimeoutError) and error.is_sent
            kind = NoAnswerInTimeError if is_sent else UnreachableError
            raise kind(
                f"cannot reach the engine at {self._address}: {self._explain(error)}"
            ) from error

    def _read_credentials(self) -> Credentials:
        if self._credentials is None:
            return Credentials()
        return read_credentials(self._credentials, self._address, EngineRefusedError)

    def _tls_context(self) -> ssl.SSLContext:
        return self._read_credentials().context("http")

    def _explain(self, error: Exception) -> str:
        if not isinstance(error, ssl.SSLError):
            return _why(error)
        refusal = explain_refusal(error, self._connections.host, self._connections.port)
        return refusal or explain_alert(error, own=self._read_credentials().tls.cert) or _why(error)

    def _decode(self, status: int, text: bytes, path: str) -> Any:
        answer, why = None, ""
        try:
            _refuse_large(text, bounds_of(path).values)
            answer = orjson.loads(text) if text else {}
        except _TooLargeError as error:
            why = f" ({error})"
        except ValueError:
            pass
        if 200 <= status < 300 and answer is not None:
            return answer
        errors = answer.get("errors") if isinstance(answer, dict) else None
        if status >= 400 and isinstance(errors, list):
            # Flink's first line has no information if a second one follows
            lines = [str(each) for each in errors if each]
            reason = "\n".join(lines[1:] or lines)
            raise RefusedAnswer(Refusal(status, cut_middle(reason, LONGEST_ERROR)))
        # A redirect, or a page of a proxy, says nothing about the engine behind it.
        raise UnreachableError(
            f"cannot reach the engine at {self._address}: HTTP {status} is no answer of"
            f" Flink's{why}; check the site's address"
        )


def _refuse_large(text: bytes, most_values: int) -> None:
    """Raise _TooLargeError for JSON of too many values or levels, before it is parsed: values take
    up to a hundred times the memory of their text, and what is read of many levels may be copied
    and written by recursion. Signs within texts do not count."""
    if has_more_values(text, most_values):
        raise _TooLargeError(f"it has more than {most_values} values")
    brackets = text.translate(None, _NO_BRACKETS)
    flatter = brackets.replace(b"{}", b"").replace(b"{}", b"")  # at most two levels less
    if flatter.count(b"{") + flatter.count(b"[") <= DEEPEST_ANSWER - 2:
        return
    brackets = (without_texts(text, len(text)) or b"").translate(None, _NO_BRACKETS)
    if max(accumulate(map(_LEVELS.__getitem__, brackets)), default=0) > DEEPEST_ANSWER:
        raise _TooLargeError(f"it has more than {DEEPEST_ANSWER} levels")


_LEVELS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _LEVELS.keys())


def _why(error: BaseException) -> str:
    """The innermost reason in a few words: outer layers say less."""
    if isinstance(error, ExchangeTimeoutError):
        return str(error)
    inner: BaseException = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    if isinstance(inner, BadStatusLine) and not isinstance(inner, RemoteDisconnected):
        return f"it does not speak HTTP ({str(inner).strip()[:80]!r}); check the site's address"
    return str(inner)[:200] or type(inner).__name__
