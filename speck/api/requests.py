"""Reading requests: query parameters, headers and bodies, all checked strictly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TypedDict

from flask import Request, request
from marshmallow import RAISE, Schema, ValidationError, fields, post_load
from marshmallow.validate import Length, OneOf, Range
from webargs.flaskparser import FlaskParser
from werkzeug.exceptions import ClientDisconnected

from speck.api.context import service
from speck.api.problems import MissingLengthError
from speck.errors import InvalidError, Problem, suggest
from speck.spec.documents import YAML_TYPES, load_document, problems_of
from speck.spec.yaml_loader import Document, Limits

MAX_WAIT_S = 3600.0
MAX_DRAIN_S = 86400.0
MAX_LIMIT = 10_000
_CHUNK = 1 << 16
_REVISION = re.compile(r'"?(\d{1,9})"?')

Query = dict[str, Any]
"""Parsed parameters: every declared one is present, None when the request lacks it."""

Param = tuple[str, fields.Field[Any]]
"""A query parameter or a header: its name, and the field that reads and describes it."""


def text(name: str, description: str, choices: Sequence[str] = ()) -> Param:
    """A text, or one of `choices`."""
    check = OneOf(choices, error="must be one of {choices}") if choices else None
    return name, fields.String(validate=check, metadata={"description": description})


def flag(name: str, description: str, *, default: bool = False) -> Param:
    """`true` or `false`."""
    return name, fields.Boolean(
        truthy={"true", "True", "TRUE", "1"},
        falsy={"false", "False", "FALSE", "0"},
        load_default=default,
        error_messages={"invalid": "must be true or false"},
        metadata={"description": description},
    )


def fresh() -> Param:
    """Whether states are to be those of now."""
    return flag(
        "fresh",
        "poll the sites first, each at most once a second for all callers, and for the first page"
        " only; without it states are those of the last poll, and no site is asked",
    )


def dropping() -> list[Param]:
    """The consent to lose messages, and how long jobs have to take theirs first."""
    fault = f"must be seconds from 0 to {MAX_DRAIN_S:.0f}"
    limit = fields.Float(
        validate=Range(0, MAX_DRAIN_S, error=fault),
        load_default=None,
        error_messages=dict.fromkeys(("invalid", "special", "too_large"), fault),
        metadata={
            "description": "with drop_queues: for how many seconds a job that leaves its link may"
            " take what waits for it; 0: not at all; by default SPECK_DRAIN_LIMIT_S"
        },
    )
    consent = flag(
        "drop_queues",
        "drop what waits for readers outside speck and for jobs that do not run or cannot be"
        " reached, and what other jobs have not taken within drain_limit; without it, 409 lists"
        " the queues of readers outside speck and of jobs that do not run",
    )
    return [consent, ("drain_limit", limit)]


class DropOptions(TypedDict):
    """The consent to lose messages, as the service takes it."""

    drop_queues: bool
    drain_limit_s: float | None


def drop_options(query: Query) -> DropOptions:
    """What `dropping` has read. Raises InvalidError for a limit without consent: nothing is given
    up then."""
    if query["drain_limit"] is not None and not query["drop_queues"]:
        fault = "needs drop_queues=true: without it, jobs take all that waits for them"
        problems = [Problem("drain_limit", fault)]
        raise InvalidError(f"cannot take drain_limit: it {fault}", problems, status=400)
    return {"drop_queues": query["drop_queues"], "drain_limit_s": query["drain_limit"]}


class _Whole(fields.Integer):
    """Decimal digits and nothing else: int() also accepts `1_0` and ` 1`."""

    def _validated(self, value: Any) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


def whole(name: str, description: str, least: int, most: int, default: int | None = None) -> Param:
    """A whole number from `least` to `most`."""
    fault = f"must be a whole number from {least} to {most}"
    return name, _Whole(
        validate=Range(least, most, error=fault),
        error_messages={"invalid": fault},
        metadata={"description": description},
        **_default(default),
    )


def _default(value: Any) -> dict[str, Any]:
    """Keyword arguments for a default: OpenAPI would document None as a permitted value."""
    return {} if value is None else {"load_default": value}


def wait(default: float = 0.0) -> Param:
    """`?wait=SECONDS`."""
    fault = f"must be seconds from 0 to {MAX_WAIT_S:.0f}"
    about = "seconds to wait for the outcome; after that the response is 202"
    return "wait", fields.Float(
        validate=Range(0, MAX_WAIT_S, error=fault),
        load_default=default,
        error_messages=dict.fromkeys(("invalid", "special", "too_large"), fault),
        metadata={"description": about},
    )


def seconds(name: str, description: str, most: float, default: float) -> Param:
    """A time span: more than 0 s, `most` at most."""
    fault = f"must be seconds above 0, and {most:g} at most"
    return name, fields.Float(
        validate=Range(0, most, min_inclusive=False, error=fault),
        load_default=default,
        error_messages=dict.fromkeys(("invalid", "special", "too_large"), fault),
        metadata={"description": f"{description}, in seconds"},
    )


def moment(name: str, description: str) -> Param:
    """A time with its zone (RFC 3339)."""
    fault = "must be a time with its zone, like 2026-03-01T12:00:00Z"
    return name, fields.AwareDateTime(
        format="iso",
        error_messages=dict.fromkeys(("invalid", "invalid_awareness"), fault),
        metadata={"description": description},
    )


def paging(after: str, limit: int | None = None) -> tuple[Param, Param]:
    """`?limit=` (default: `limit`, or no limit) and `?after=`, the last item's field `after`."""
    return (
        whole("limit", "maximum number of items", 1, MAX_LIMIT, limit),
        text("after", f"only items after this one: the {after} of the last item of a page"),
    )


class _Revision(fields.String):
    """A revision, with or without quotes; None for `*`, which matches any revision."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **more: Any) -> Any:
        revision = value.strip()
        if revision == "*":
            return None
        match = _REVISION.fullmatch(revision)
        if match is None:
            raise ValidationError(f'{revision[:40]!r} is not a revision like "3"')
        return int(match[1])


def if_match(description: str) -> Param:
    """The header If-Match: a revision, or None."""
    return "If-Match", _Revision(metadata={"description": description})


def idempotency_key(description: str) -> Param:
    """The header Idempotency-Key, 1 to 255 characters."""
    check = Length(1, 255, error="must have 1 to 255 characters")
    return "Idempotency-Key", fields.String(validate=check, metadata={"description": description})


class _Params(Schema):
    @post_load
    def _fill(self, parsed: Query, **_: Any) -> Query:
        return {**dict.fromkeys(self.fields), **parsed}


def schema_of(params: Sequence[Param]) -> type[Schema]:
    """The schema with which flask-smorest reads and documents `params`."""
    return _Params.from_dict(dict(params))


class ParamParser(FlaskParser):
    """Reads parameters strictly. Raises InvalidError (400), also for an undeclared query
    parameter: a misspelt `dry_run` must not deploy."""

    DEFAULT_UNKNOWN_BY_LOCATION: dict[str, str | None] = {  # noqa: RUF012
        **FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION,
        "query": RAISE,
    }

    def load_querystring(self, req: Request, schema: Schema) -> Any:
        """Load the query. Raises ValidationError when a declared parameter is repeated."""
        repeated = [name for name, values in req.args.lists() if len(values) > 1]
        if faults := {name: "given more than once" for name in repeated if name in schema.fields}:
            raise ValidationError(faults)
        return super().load_querystring(req, schema)

    def handle_error(
        self, error: ValidationError, req: Request, schema: Schema, **_: Any
    ) -> NoReturn:
        """Raises InvalidError."""
        problems = [
            problem
            for location, faults in error.normalized_messages().items()  # type: ignore[no-untyped-call]
            for name, messages in faults.items()
            for problem in _problems(location, name, messages, schema)
        ]
        message = f"cannot {req.method} {req.path}: {problems[0]}"
        raise InvalidError(message, problems, status=400) from error


def _problems(location: str, name: str, faults: Any, schema: Schema) -> Iterator[Problem]:
    path = f"?{name}" if location == "query" else name
    if name not in schema.fields:
        faults = [f"unknown query parameter; {suggest(name.replace('-', '_'), schema.fields)}"]
    for fault in [faults] if isinstance(faults, str) else faults:
        yield Problem(path, fault)


def document(limits: Limits | None = None) -> Document:
    """The parsed body. Raises InvalidError (415, 413, 400) and MissingLengthError."""
    most = max(service().config.max_body, limits.bytes) if limits else None
    return _parse(_body(_length(most)), limits)


def optional_object(noun: str, most: int | None = None) -> dict[str, Any]:
    """The body, which must be a mapping; empty if there is none. `most`: a limit in bytes that is
    lower than that of all bodies."""
    if not request.content_length:
        return {}
    return mapping(_parse(_body(_length(most))), noun)


def mapping(body: Document, noun: str, known: Sequence[str] | None = None) -> dict[str, Any]:
    """The data of a document, which must be a mapping; `known` restricts its fields."""
    data = body.data
    if not isinstance(data, dict):
        fault = "must be a mapping of field names to values"
        raise InvalidError(f"cannot read the {noun}: it {fault}", [Problem("", fault)])
    unknown = [] if known is None else [key for key in data if key not in known]
    if known is not None and unknown:
        fault = f"unknown field; known are {', '.join(known)}"
        problems = [Problem(key, fault, body.line_of(key)) for key in unknown]
        raise InvalidError(f"cannot read the {noun}: {problems[0]}", problems)
    return data


def stream(most: int) -> Iterator[bytes]:
    """The whole body in chunks. Raises InvalidError when it is larger than `most` bytes or ends
    before its Content-Length."""
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


def _parse(body: bytes, limits: Limits | None = None) -> Document:
    content_type = request.content_type
    media = (content_type or "").split(";")[0].strip().lower()
    if content_type and media != "application/json" and media not in YAML_TYPES:
        raise InvalidError(
            f"cannot read content type {media[:80]!r}: send the header"
            " `Content-Type: application/yaml` or `Content-Type: application/json`",
            status=415,
        )
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidError("cannot read a compressed body: send it as it is", status=415)
    return load_document(body, media, limits)


def _body(length: int) -> bytes:
    return b"".join(_chunks(length))


def _chunks(length: int) -> Iterator[bytes]:
    remaining = length
    while remaining > 0:
        try:
            chunk = request.stream.read(min(remaining, _CHUNK))
        except ClientDisconnected:
            chunk = b""
        if not chunk:
            fault = f"ends after {length - remaining} of {length} bytes"
            problems = [Problem("", fault)]
            raise InvalidError(f"cannot take this body: it {fault}", problems, status=400)
        remaining -= len(chunk)
        yield chunk


def refuse_other_name(field: str, in_path: str, in_body: str) -> None:
    """Raises InvalidError when the name in the body differs from that in the path."""
    if in_body != in_path:
        fault = f"is {in_body!r}, but the path says {in_path!r}; a name cannot be changed"
        raise InvalidError(f"cannot read {field}: it {fault}", [Problem(field, fault)])


def load_body(shape: Schema) -> dict[str, Any]:
    """The fields of a JSON or YAML body. Raises InvalidError with every problem."""
    body = document()
    try:
        loaded: dict[str, Any] = shape.load(body.data)
    except ValidationError as error:
        problems = problems_of(error.messages, body.line_of)
        raise InvalidError(f"cannot read the request: {problems[0]}", problems) from error
    return loaded
