"""Requests to one service, with time limits, and what becomes of answers and of their absence.

No redirect is followed (a token must not travel to another host), and proxies of the environment
are ignored.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import SplitResult, quote, urlsplit

import orjson
import requests

from speck.client.bounds import (
    MAX_LIST,
    BoundedAdapter,
    Deadline,
    TooLargeError,
    read_body,
    refuse_compressed,
)
from speck.errors import InvalidError, PermanentError, Problem, TransientError
from speck.model.values import JsonObject
from speck.tls.certificates import explain_alert, explain_refusal
from speck.tls.contexts import ClientTls, client_context

DEFAULT_SERVER = "http://127.0.0.1:8080"
CONNECT_S = 5.0
ANSWER_S = 60.0
"""How long an answer may take, in addition to the time that a call asks the service to wait."""

CHUNK = 1 << 20
"""Bytes of a file that are sent or read at once."""

_LEAST_S = 0.05
_RETRIES_S = (0.2, 0.5, 1.0, 2.0)


class NoServerError(TransientError):
    """No service answers at the address; `refused`: nothing listens on the port."""

    def __init__(self, message: str, *, refused: bool = False):
        super().__init__(message)
        self.refused = refused


class NoAnswerInTimeError(NoServerError):
    """The user's time limit ended before the service answered; the service may go on with the
    request."""


class ClientError(PermanentError):
    """The service refused the request; `problems` are the faults that it reported."""

    def __init__(self, message: str, status: int, problems: tuple[Problem, ...] = ()):
        super().__init__(message)
        self.status = status
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Content:
    """A file that the service sends: its size, if the service says it, and its pieces, each read
    when it is asked for."""

    size: int | None
    pieces: Iterator[bytes]

    def __iter__(self) -> Iterator[bytes]:
        return self.pieces


def _split(server: str) -> SplitResult:
    """The parts of the service's address. A user or password is no part of it: it would be in
    messages, and not be sent."""
    try:
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            if parts.username is None:
                return parts
            raise InvalidError(
                f"cannot use a user or password in the service's address ({parts.hostname}): give"
                " the token by SPECK_TOKEN or --token-file"
            )
    except ValueError:
        pass
    raise InvalidError(f"cannot use {server!r} as the service's address: write http://host:port")


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls an answer in plain text."""


class Transport:
    """Connections to one service. Close it, or use it in a `with` block."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        answer_s: float = ANSWER_S,
        tls: ClientTls | None = None,
        clean: Callable[[str], str] | None = None,
    ):
        """`clean` is applied to all texts of answers: to what a person reads."""
        parts = _split(server)
        self.server = server.rstrip("/")
        host = parts.hostname or ""
        self.local = host in ("localhost", "::1") or host.startswith("127.")
        self._answer_s = answer_s
        self._until: float | None = None
        self._clean = clean
        self._deadline = Deadline()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, BoundedAdapter(self._deadline))
        self._session.headers["Accept-Encoding"] = "identity"
        self._session.trust_env = False
        self._own_cert = tls.cert if tls else None
        if parts.scheme == "https":
            self._use(tls or ClientTls())
        elif tls and (tls.ca or tls.cert):
            raise InvalidError(
                f"cannot use --ca or --cert for {server}: it is not encrypted; write https://..."
            )
        self._session.headers["Accept"] = "application/json, application/problem+json"
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise InvalidError("cannot use the token: it must be one line of plain characters")
            self._session.headers["Authorization"] = f"Bearer {token}"

    def _use(self, tls: ClientTls) -> None:
        """Take the files for new connections. Raises PermanentError if they cannot be used."""
        if tls.key is not None and tls.cert is None:
            raise InvalidError(f"cannot use the key {tls.key} without its certificate: add --cert")
        client_context(tls.ca, tls.cert, tls.key)  # here, since its messages say which file it is
        bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE")
        self._session.verify = str(tls.ca) if tls.ca else bundle or True
        if tls.cert is not None:
            self._session.cert = (str(tls.cert), str(tls.key or tls.cert))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def limit(self, seconds: float | None) -> None:
        """Limit the time of all further calls together; None: no limit."""
        self._until = None if seconds is None else time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """Whether the time limit has passed."""
        return self._until is not None and time.monotonic() >= self._until

    def _content(self, answer: requests.Response, what: str) -> Content:
        return Content(_size_of(answer), self._read(answer, what))

    def _read(self, answer: requests.Response, what: str) -> Iterator[bytes]:
        try:
            yield from answer.iter_content(CHUNK)
        except requests.RequestException as error:
            raise TransientError(f"cannot read the whole {what}: {error}; try again") from error

    def _list(self, path: str, noun: str, key: str, **query: Any) -> list[JsonObject]:
        """All items of a list, fetched page by page: `after` is the last item's key."""
        items: list[JsonObject] = []
        size = 0
        while True:
            answer = self._call("GET", path, query=query)
            size += len(answer.content)
            if size > MAX_LIST:
                raise self._too_large_error(f"{path} has more than {MAX_LIST // 2**20} MiB")
            page: list[JsonObject] = self._body(answer)[noun]
            items += page
            if not page or "next" not in answer.links:
                return items
            query["after"] = page[-1][key]
            query.pop("fresh", None)  # the first page has had the sites polled

    def _json(self, method: str, path: str, **call: Any) -> JsonObject:
        return self._body(self._call(method, path, **call))

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        again: bool = False,
        answer_s: float | None = None,
        stream: bool = False,
        **call: Any,
    ) -> requests.Response:
        """Send one request; with `again`, repeat it for a while if no answer comes. `answer_s`:
        the time limit of an answer that takes longer than usual. `stream`: do not read the body."""
        params = {k: _word(v) for k, v in (query or {}).items() if v is not None}
        for pause in (*_RETRIES_S, None) if again else (None,):
            limits = self._timeout(max(self._answer_s, answer_s or 0.0))
            self._deadline.until = time.monotonic() + sum(limits)
            try:
                answer = self._session.request(
                    method,
                    self.server + path,
                    params=params,
                    timeout=limits,
                    allow_redirects=False,
                    stream=True,
                    **call,
                )
                refuse_compressed(answer)
                if not stream or not answer.ok:
                    answer._content = read_body(answer)
            except TooLargeError as error:
                answer.close()
                raise self._too_large_error(str(error)) from error
            except requests.RequestException as error:
                if pause is None or self.is_late:
                    raise self._no_answer_error(error) from error
                time.sleep(pause)
                continue
            if not 200 <= answer.status_code < 300:
                raise self._refusal_error(answer)
            return answer
        raise AssertionError("the last attempt returns or raises")

    def _timeout(self, answer_s: float) -> tuple[float, float]:
        """Seconds that connecting and answering may take."""
        if self._until is None:
            return CONNECT_S, answer_s
        remaining_s = max(_LEAST_S, self._until - time.monotonic())
        return min(CONNECT_S, remaining_s), min(answer_s, remaining_s)

    def _no_answer_error(self, error: requests.RequestException) -> NoServerError:
        if self.is_late:
            return NoAnswerInTimeError(
                f"cannot wait for {self.server} any longer: it has not answered within --timeout;"
                " the service may still carry out the request (see `speck status`)"
            )
        if isinstance(error, requests.exceptions.ReadTimeout):
            return NoServerError(
                f"cannot get an answer from speck at {self.server}:"
                f" none came within {self._answer_s:g} s; see the service's log"
            )
        parts = urlsplit(self.server)
        if refusal := explain_refusal(error, parts.hostname or "", parts.port or 443):
            return NoServerError(
                f"cannot trust speck at {self.server}: {refusal} (--ca or SPECK_CA names the file)"
            )
        if alert := explain_alert(error, own=self._own_cert):
            return NoServerError(
                f"cannot reach speck at {self.server}: {alert} (--cert and --key, or SPECK_CERT and"
                " SPECK_KEY)"
            )
        cause = _cause(error)
        refused = isinstance(cause, ConnectionRefusedError)
        reason = getattr(cause, "strerror", None) or str(cause)
        hint = "start it with `speck serve`" if self.local else "is the address right?"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            reason, hint = "it does not speak TLS", "write http://"
        elif isinstance(cause, ConnectionResetError):
            hint = "is the address right, and http or https?"
        return NoServerError(
            f"cannot reach speck at {self.server}: {reason}; {hint}", refused=refused
        )

    def _too_large_error(self, why: str) -> ClientError:
        return ClientError(
            f"cannot read the answer of {self.server}: {why}; is it a speck service?", 0
        )

    def _foreign_error(self, answer: requests.Response) -> ClientError:
        return ClientError(
            f"cannot understand the answer of {self.server} (HTTP {answer.status_code}):"
            " is it a speck service? Give its address with --server",
            answer.status_code,
        )

    def _refusal_error(self, answer: requests.Response) -> ClientError:
        status = answer.status_code
        body = _parse(answer)
        if body is None or not ({"title", "detail"} & body.keys()):
            return self._foreign_error(answer)
        message = str(body.get("detail") or body["title"])
        if status == 401:
            message += " (here: by SPECK_TOKEN or --token-file)"
        identity = str(body.get("request_id") or "")
        if status >= 500 and identity not in message:
            message += f" (request {identity})"
        errors = body.get("errors")
        entries = errors if isinstance(errors, list) else []
        problems = [_problem(entry) for entry in entries if isinstance(entry, dict)]
        return ClientError(message, status, tuple(problems))

    def _body(self, answer: requests.Response) -> JsonObject:
        if answer.status_code == 204 or not answer.content:
            return {}
        body = _parse(answer)
        if body is None:
            raise ClientError(
                f"cannot understand the answer to {answer.request.method} {answer.url}:"
                " is it a speck service? Give its address with --server",
                answer.status_code,
            )
        if self._clean is not None:
            cleaned: JsonObject = _clean_all(body, self._clean)
            return cleaned
        return body


def _parse(answer: requests.Response) -> JsonObject | None:
    """The object that is the body; None if it is anything else."""
    try:
        body = orjson.loads(answer.content)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _clean_all(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return value if value.isprintable() else clean(value)
    if isinstance(value, dict):
        return {_clean_all(key, clean): _clean_all(each, clean) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean_all(each, clean) for each in value]
    return value


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _problem(entry: Mapping[str, Any]) -> Problem:
    line = entry.get("line")
    place, text = str(entry.get("path", "")), str(entry.get("message", ""))
    return Problem(place, text, line if isinstance(line, int) else None)


def _cause(error: BaseException) -> BaseException:
    """The operating system's own error, which requests hides under several wrappers."""
    current: object = error
    for _ in range(10):
        if not isinstance(current, BaseException):
            break
        if isinstance(current, OSError) and not isinstance(current, requests.RequestException):
            return current
        reason = getattr(current, "reason", None)
        inner = [current.__cause__, current.__context__, reason, *current.args]
        current = next((one for one in inner if isinstance(one, BaseException)), None)
    return error


def _size_of(answer: requests.Response) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def path_part(name: str) -> str:
    """A name as one part of a path; dots alone would be read as folders."""
    if name in ("", ".", ".."):
        raise InvalidError(f"cannot use {name!r} as a name")
    return quote(name, safe="")
