"""Documents that users send: parsed by their media type, loaded by a schema, dumped by it.

Every fault of a document is reported in one pass and named by its path (and line, for YAML).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from marshmallow import Schema, ValidationError

from speck.errors import MOST_PROBLEMS, InvalidError, Problem
from speck.model.values import JsonObject, show
from speck.spec import yaml_loader
from speck.spec.yaml_loader import MAX_BYTES, MAX_NODES, Document, Limits

LineOf = Callable[[str], int | None]

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
_BYTES_A_JOB, _NODES_A_JOB = 512, 40
"""A job with its fields has about 300 bytes and 20 values."""


def limits_for(jobs: int) -> Limits:
    """The limits of a document that may describe so many jobs."""
    return Limits(max(MAX_BYTES, jobs * _BYTES_A_JOB), max(MAX_NODES, jobs * _NODES_A_JOB))


def load_document(text: bytes, content_type: str | None, limits: Limits | None = None) -> Document:
    """Parse a request body or file by its media type (parameters ignored; none means YAML).

    Raises InvalidError: status 400 if it cannot be parsed, 415 for another media type.
    """
    media = (content_type or "").split(";")[0].strip().lower()
    if media == "application/json" or media.endswith("+json"):
        return yaml_loader.load_json(text, limits or Limits())
    if not media or media in YAML_TYPES:
        return yaml_loader.load(text, limits or Limits())
    raise InvalidError(
        f"cannot read content type {show(media)}; send application/yaml or application/json",
        status=415,
    )


def load(schema: Schema, data: Any, noun: str, line_of: LineOf | None) -> Any:
    """What `schema` makes of parsed `data`. Raises InvalidError with every problem."""
    if data is None:
        problem = Problem("", f"empty; a {noun} is a mapping of field names to values")
        raise InvalidError(f"cannot read the {noun}: it is empty", [problem])
    try:
        return schema.load(data)
    except ValidationError as exc:
        problems = problems_of(exc.messages, line_of)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidError(f"cannot read the {noun}: {problems[0]}{more}", problems) from exc


def problems_of(messages: Any, line_of: LineOf | None = None) -> list[Problem]:
    """Turn marshmallow's nested error messages into problems with paths (100 at most), by line."""
    find_line = line_of or (lambda path: None)
    problems = [
        Problem(path, message, find_line(path))
        for path, message in islice(_flatten(messages, ""), MOST_PROBLEMS)
    ]
    return sorted(problems, key=lambda problem: problem.line or 0)


def _flatten(messages: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, Mapping):
        for key, inner in sorted(messages.items(), key=_by_index):
            if isinstance(key, int):
                yield from _flatten(inner, f"{path}[{key}]")
            elif key == "_schema":
                yield from _flatten(inner, path)
            else:
                yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(messages, list | tuple):
        for inner in messages:
            yield from _flatten(inner, path)
    else:
        yield path, str(messages)


def _by_index(item: tuple[Any, Any]) -> int:
    return item[0] if isinstance(item[0], int) else 0


def dump(schema: Schema, value: object) -> JsonObject:
    """The inverse of `load`."""
    data: JsonObject = dict(schema.dump(value))
    return data
