"""Errors as application/problem+json (RFC 9457); one table maps each type to an HTTP status."""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from speck.api.masking import mask_text
from speck.errors import (
    BrokerRefusedError,
    ConflictError,
    EngineRefusedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    PermanentError,
    Problem,
    QueuesError,
    SpeckError,
    StaleRevisionError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreWriteError,
    TransientError,
    UnauthorizedError,
    UnreachableError,
)
from speck.model.shown import render

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "X-Request-Id"
RETRY_AFTER_S = 5

_log = logging.getLogger("speck.api")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")


class MissingLengthError(PermanentError):
    """A body without Content-Length (HTTP 411): a truncated one would look complete."""


_STATUS: Mapping[type[BaseException], int] = {
    NotFoundError: 404,
    ConflictError: 409,
    StaleRevisionError: 412,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    MissingLengthError: 411,
    EngineRefusedError: 502,
    BrokerRefusedError: 502,
    UnreachableError: 503,
    TransientError: 503,
    StoreClosedError: 503,
    StoreFullError: 507,
    StoreWriteError: 503,
    StoreError: 500,
    PermanentError: 500,
}


def status_of(error: SpeckError) -> int:
    """The HTTP status of an error: that of the nearest class in its ancestry."""
    if isinstance(error, InvalidError):
        return error.status
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def retry_headers(status: int) -> dict[str, str]:
    """The headers that say when to try again, of an answer with this status."""
    return {"Retry-After": str(RETRY_AFTER_S)} if status in (503, 507) else {}


def request_id() -> str:
    """The id of this request: the client's own if it is well-formed, else a new one."""
    if "request_id" not in g:
        header = request.headers.get(REQUEST_ID, "")
        g.request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
    return str(g.request_id)


def problem_body(
    status: int, detail: str, identity: str, problems: Sequence[Problem] = (), **more: Any
) -> dict[str, Any]:
    """The members of a problem; `more` holds extension members, which are omitted when None."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": identity,
        "errors": [
            {"path": p.path, "message": p.message, **({"line": p.line} if p.line else {})}
            for p in problems
        ],
        **{key: value for key, value in more.items() if value is not None},
    }


def problem(
    status: int,
    detail: str,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem as a response."""
    body = problem_body(status, detail, request_id(), problems, **more)
    text = json.dumps(body, ensure_ascii=False) + "\n"
    return Response(text, status, dict(headers or {}), content_type=MEDIA_TYPE)


def register(app: Flask) -> None:
    """Let `app` answer every error with a problem."""
    app.register_error_handler(SpeckError, _of_speck)
    app.register_error_handler(HTTPException, of_http)
    app.register_error_handler(Exception, of_fault)


def _of_speck(error: SpeckError) -> Response:
    status = status_of(error)
    headers = retry_headers(status)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="speck"'
    if status == 500:
        _log.error("request %s: %s", request_id(), error, exc_info=error)
    problems = error.problems if isinstance(error, InvalidError | ForbiddenError) else ()
    change = error.change if isinstance(error, ConflictError) else None
    queues = render(error.queues) if isinstance(error, QueuesError) else None
    return problem(status, str(error), problems, headers, change=change, queues=queues)


def of_http(error: HTTPException) -> Response:
    """Flask's own errors: unknown routes, methods that a route does not support, ..."""
    status = error.code or 500
    headers = {}
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        headers["Allow"] = ", ".join(sorted(error.valid_methods))
    call = f"{request.method} {request.path}"
    if status == 404:
        detail = f"cannot find {request.path}: no such route; GET /docs lists all routes"
    elif status == 405:
        detail = f"cannot {call}: this route supports {headers.get('Allow', 'other methods')}"
    else:
        detail = f"cannot {call}: {error.description or error.name}"
    return problem(status, detail, headers=headers)


def of_fault(error: Exception) -> Response:
    """A fault of speck's own; what it says is only in the log."""
    path = mask_text(request.path)
    _log.error("request %s: %s %s", request_id(), request.method, path, exc_info=error)
    return problem(
        500,
        f"cannot {request.method} {request.path}: internal error in speck;"
        f" see its log for request {request_id()}",
    )
