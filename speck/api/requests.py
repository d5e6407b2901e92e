"""What a request holds: query parameters, headers and bodies, each checked strictly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flask import request
from werkzeug.exceptions import ClientDisconnected

from speck.api.context import service
from speck.api.problems import MissingLengthError
from speck.errors import InvalidError, Problem, meant
from speck.spec.schema import YAML_TYPES, load_document
from speck.spec.yaml_loader import Document

MAX_WAIT_S = 3600.0
MAX_LIMIT = 10_000
_CHUNK = 1 << 16
_REVISION = re.compile(r'"?(\d{1,9})"?')

Query = dict[str, Any]
"""Parsed query parameters; every declared one is there, None when it was not given."""


@dataclass(frozen=True, slots=True)
class Param:
    """A query parameter: how it is read (raises ValueError) and how it is described."""

    name: str
    read: Callable[[str], Any]
    schema: dict[str, Any]
    description: str
    default: Any = None

    def to_openapi(self) -> dict[str, Any]:
        schema = self.schema if self.default is None else {**self.schema, "default": self.default}
        return {
            "in": "query",
            "name": self.name,
            "required": False,
            "description": self.description,
            "schema": schema,
        }


def text(name: str, description: str, choices: Sequence[str] = ()) -> Param:
    """A text, or one of `choices`."""

    def read(value: str) -> str:
        if choices and value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    schema: dict[str, Any] = {"type": "string"}
    return Param(name, read, {**schema, "enum": list(choices)} if choices else schema, description)


def flag(name: str, description: str, *, default: bool = False) -> Param:
    """`true` or `false`."""

    def read(value: str) -> bool:
        if value.lower() not in ("true", "false", "1", "0"):
            raise ValueError("must be true or false")
        return value.lower() in ("true", "1")

    return Param(name, read, {"type": "boolean"}, description, default)


def whole(name: str, description: str, least: int, most: int, default: int | None = None) -> Param:
    """A whole number from `least` to `most`."""

    def read(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", value) or not least <= int(value) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(value)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Param(name, read, schema, description, default)


def wait(default: float = 0.0) -> Param:
    """`?wait=SECONDS`."""

    def read(value: str) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= MAX_WAIT_S:
            raise ValueError(f"must be seconds from 0 to {MAX_WAIT_S:.0f}")
        return seconds

    schema = {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S}
    about = "how many seconds to wait for the outcome; then the answer is 202"
    return Param("wait", read, schema, about, default)


def paging(after: str, limit: int | None = None) -> tuple[Param, Param]:
    """`?limit=` (without one: `limit`, or all) and `?after=`, the `after` of the last item."""
    return (
        whole("limit", "at most so many items", 1, MAX_LIMIT, limit),
        text("after", f"only items behind this one: the {after} of the last item that was read"),
    )


def read_query(params: Sequence[Param]) -> Query:
    """The declared parameters. Raises InvalidError (400) also for one that is not declared:
    a misspelt `dry_run` must not deploy."""
    known = {param.name: param for param in params}
    problems = []
    query: Query = {param.name: param.default for param in params}
    for name, values in request.args.lists():
        if name not in known:
            hint = meant(name.replace("-", "_"), known)
            problems.append(Problem(f"?{name}", f"unknown query parameter; {hint}"))
        elif len(values) > 1:
            problems.append(Problem(f"?{name}", "given more than once"))
        else:
            try:
                query[name] = known[name].read(values[0])
            except ValueError as error:
                problems.append(Problem(f"?{name}", str(error)))
    if problems:
        message = f"cannot {request.method} {request.path}: {problems[0]}"
        raise InvalidError(message, problems, status=400)
    return query


def if_match() -> int | None:
    """The revision that If-Match names; None without one, or for `*`."""
    given = request.headers.get("If-Match", "*").strip()
    if given == "*":
        return None
    found = _REVISION.fullmatch(given)
    if found is None:
        fault = f'{given[:40]!r} is no revision like "3"'
        raise _bad_header("If-Match", fault)
    return int(found[1])


def idempotency_key() -> str | None:
    """The Idempotency-Key, 1 to 255 characters."""
    given = request.headers.get("Idempotency-Key")
    if given is not None and not 1 <= len(given) <= 255:
        raise _bad_header("Idempotency-Key", "must have 1 to 255 characters")
    return given


def _bad_header(name: str, fault: str) -> InvalidError:
    return InvalidError(f"cannot read {name}: {fault}", [Problem(name, fault)], status=400)


def document() -> Document:
    """The body, parsed. Raises InvalidError: 415, 413, 400; MissingLengthError."""
    return _parsed(_body(_length()))


def optional_object(noun: str) -> dict[str, Any]:
    """The body, a mapping; an absent one is empty."""
    if not request.content_length:
        return {}
    return mapping(_parsed(_body(_length())), noun)


def mapping(read: Document, noun: str, known: Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a document, which must be a mapping with no other than the `known` fields."""
    data = read.data
    if not isinstance(data, dict):
        fault = "must be a mapping of field names to values"
        raise InvalidError(f"cannot read the {noun}: it {fault}", [Problem("", fault)])
    unknown = [] if known is None else [key for key in data if key not in known]
    if known is not None and unknown:
        fault = f"unknown field; known are {', '.join(known)}"
        problems = [Problem(key, fault, read.line_of(key)) for key in unknown]
        raise InvalidError(f"cannot read the {noun}: {problems[0]}", problems)
    return data


def stream(most: int) -> Iterator[bytes]:
    """The body in chunks, all of it. Raises InvalidError when it is larger than `most` bytes
    or ends before its Content-Length."""
    return _chunks(_length(most))


def _length(most: int | None = None) -> int:
    most = service().config.max_body if most is None else most
    length = request.content_length
    if length is None:
        raise MissingLengthError(
            f"cannot {request.method} {request.path} without Content-Length: send a body with it"
        )
    if length > most:
        fault = f"has {length} bytes, at most {most} are taken"
        raise InvalidError(f"cannot take this body: it {fault}", [Problem("", fault)], status=413)
    return length


def _parsed(body: bytes) -> Document:
    given = request.content_type
    media = (given or "").split(";")[0].strip().lower()
    if given and media != "application/json" and media not in YAML_TYPES:
        raise InvalidError(
            f"cannot read content type {media[:80]!r}: send the header"
            " `Content-Type: application/yaml` or `Content-Type: application/json`",
            status=415,
        )
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidError("cannot read a compressed body: send it as it is", status=415)
    return load_document(body, media)


def _body(length: int) -> bytes:
    return b"".join(_chunks(length))


def _chunks(length: int) -> Iterator[bytes]:
    left = length
    while left > 0:
        try:
            chunk = request.stream.read(min(left, _CHUNK))
        except ClientDisconnected:
            chunk = b""
        if not chunk:
            fault = f"ends after {length - left} of {length} bytes"
            problems = [Problem("", fault)]
            raise InvalidError(f"cannot take this body: it {fault}", problems, status=400)
        left -= len(chunk)
        yield chunk


def refuse_other_name(field: str, in_path: str, in_body: str) -> None:
    """Raises InvalidError when the body names another thing than the path."""
    if in_body != in_path:
        fault = f"is {in_body!r}, but the path says {in_path!r}; a name cannot be changed"
        raise InvalidError(f"cannot read {field}: it {fault}", [Problem(field, fault)])
