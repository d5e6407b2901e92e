"""A strict reader of YAML and JSON: no surprising types, and limits on size.

YAML is built from libyaml's event stream, never by a constructor, so that no tag can create
an object and every limit is enforced before memory is used. Differences from common YAML
readers: no anchors, aliases, tags or second document (empty ones do not count); no duplicate keys;
keys are always text; escaped surrogate pairs are one character, as in JSON;
only `true` and `false` are booleans; whole numbers are plain decimals (`010`, `0x1f`, `1_000`,
`12:30:45` and `NO` stay text); only `null`, `~` and an empty value are null.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml

from speck.errors import InvalidError, Problem
from speck.spec.json_size import has_more_values
from speck.spec.pasted_text import describe_ruler, find_ruler, holds_ruler, join_surrogates

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_NODES = 200_000
MAX_KEY = 255
MAX_DIRECTIVES = 20
"""Lines that begin with %: libyaml compares each %TAG with all before it, and a megabyte of them
takes some seconds, in which no other thread runs."""
_MAX_PROBLEMS = 50


_FEW_NODES = 20_000
_BYTES_A_NODE = 6
"""Of a document with more than a few values. A job has at least 8 bytes for each of its values and
keys; a megabyte of `a,a,a` takes two seconds to be read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of one document, and values, keys included."""

    bytes: int = MAX_BYTES
    nodes: int = MAX_NODES

    def nodes_in(self, size: int) -> int:
        """The most values of a document of `size` bytes or characters."""
        return min(self.nodes, max(_FEW_NODES, size // _BYTES_A_NODE))


_USUAL = Limits()

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DIRECTIVE = re.compile(r"(?:^|[\n\r\x85\u2028\u2029])%")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Lines:
    """The line of a value, and those of its children by key or index; most have none."""

    line: int
    children: dict[str | int, _Lines] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """Parsed input: plain dicts, lists and scalars, and the line of each."""

    data: Any
    _lines: _Lines | None = None

    def line_of(self, path: str) -> int | None:
        """The 1-based line of the value at `path` (like `jobs[2].sink_topic`).

        For a path that does not exist, the line of the nearest enclosing value that does. None for
        JSON, whose lines are not recorded.
        """
        return _line_of(self._lines, path) if self._lines is not None else None


def _line_of(lines: _Lines, path: str) -> int:
    rest = path.removeprefix(".")
    if not rest or not lines.children:
        return lines.line
    index = re.match(r"\[(\d{1,9})\]", rest)
    if index is not None and (child := lines.children.get(int(index[1]))) is not None:
        return _line_of(child, rest[index.end() :])
    ends = [match.start() for match in re.finditer(r"[.\[]", rest)]
    for end in (*ends, len(rest)):  # a key may itself hold dots: take the first that exists
        if (child := lines.children.get(rest[:end])) is not None:
            return _line_of(child, rest[end:])
    return lines.line


def load(text: bytes | str, limits: Limits = _USUAL) -> Document:
    """Read one YAML document; for an empty one `data` is None. JSON is YAML, also where a YAML
    parser does not take it (tabs between values, say).

    Raises InvalidError with status 400, with the place of every fault.
    """
    source = _decode(text, limits)
    try:
        builder = _build(source, limits)
    except (yaml.YAMLError, ValueError) as exc:
        if source.lstrip().startswith(("{", "[")):
            with suppress(InvalidError):
                return load_json(source, limits)
        raise _refusal([_problem_of(exc, source)]) from exc
    if builder.problems:
        raise _refusal(builder.problems)
    if isinstance(builder.data, str) and (problem := find_ruler(source)):
        raise _refusal([problem])
    return Document(builder.data, builder.lines)


def _problem_of(error: Exception, source: str) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem("", f"not valid YAML: {_first_line(error)}")
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else None
    message = f"not valid YAML: {error.problem or error}"
    return find_ruler(source, line) or Problem("", message, line)


def _build(source: str, limits: Limits) -> _Builder:
    if sum(1 for _ in islice(_DIRECTIVE.finditer(source), MAX_DIRECTIVES + 1)) > MAX_DIRECTIVES:
        raise ValueError(f"more than {MAX_DIRECTIVES} lines begin with %, as directives do")
    builder = _Builder(limits.nodes_in(len(source)))
    try:
        for event in yaml.parse(source, Loader=_Loader):
            builder.take(event)
    except yaml.MarkedYAMLError:
        joined = join_surrogates(source, 4 * limits.nodes_in(len(source)), _Loader)
        if joined == source:
            raise
        return _build(joined, limits)
    return builder


def load_json(text: bytes | str, limits: Limits = _USUAL) -> Document:
    """Read one JSON document with the same limits: no duplicate keys, no NaN or infinity.

    Raises InvalidError with status 400.
    """
    source = _decode(text, limits)
    most_nodes = limits.nodes_in(len(source))
    if has_more_values(source.encode("utf-8", "surrogatepass"), 2 * most_nodes):
        raise _refusal([Problem("", _too_many(most_nodes))])  # before it takes memory
    problems: list[Problem] = []
    try:
        data = json.loads(
            source,
            object_pairs_hook=lambda pairs: _object(pairs, problems),
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except json.JSONDecodeError as exc:
        problem = Problem("", f"not valid JSON: {exc.msg}", exc.lineno)
        raise _refusal([find_ruler(source, exc.lineno) or problem]) from exc
    except RecursionError as exc:
        raise _refusal([Problem("", _too_deep())]) from exc
    except ValueError as exc:
        raise _refusal([Problem("", f"not valid JSON: {_first_line(exc)}")]) from exc
    if problems:
        raise _refusal(problems)
    _check_size(data, most_nodes)
    return Document(data)


def _decode(text: bytes | str, limits: Limits) -> str:
    size = len(text)  # a character is at least one byte, so this never refuses a small document
    if size <= limits.bytes and isinstance(text, str):
        size = len(text.encode("utf-8", "surrogatepass"))
    if size > limits.bytes:
        raise _refusal([Problem("", f"larger than {limits.bytes} bytes; split the composition")])
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = text.count(b"\n", 0, exc.start) + 1
        raise _refusal([Problem("", "not UTF-8 text", line)]) from exc


def _refusal(problems: Iterable[Problem]) -> InvalidError:
    problems = tuple(problems)
    return InvalidError(f"cannot read the document: {problems[0]}", problems, status=400)


def _first_line(exc: Exception) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0][:200]


def _too_many(nodes: int) -> str:
    return f"more than {nodes} values, the most of a document of this size"


def _too_deep() -> str:
    return f"nested deeper than {MAX_DEPTH} levels"


def _is_empty(event: Any) -> bool:
    """Whether a document holds nothing, as behind a `---` at the end of a file."""
    is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0] and not event.style
    return is_plain and event.value == "" and event.anchor is None


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(text: str) -> Any:
    """What an unquoted scalar means."""
    if text in ("null", "~", ""):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    # Digits that are no plain decimal number (too many, say) stay text.
    if _FLOAT.fullmatch(text) and not text.lstrip("-").isdigit():
        number = float(text)
        return number if math.isfinite(number) else text
    return text


@dataclass(slots=True)
class _Frame:
    """A mapping or list that is being read, and the lines of its children; `key` is the mapping's
    key whose value comes next."""

    value: dict[str, Any] | list[Any]
    children: dict[str | int, _Lines]
    path: str
    key: str | None = None
    key_line: int = 0
    is_duplicate: bool = False


class _Builder:
    """Turns YAML events into plain data and lines, and collects problems. Empty documents (a `---`
    at the end, say) are left out."""

    def __init__(self, most_nodes: int) -> None:
        self.data: Any = None
        self.lines = _Lines(1)
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._most_nodes = most_nodes
        self._nodes = 0
        self._has_document = False
        self._document_line = 1

    def take(self, event: Any) -> None:
        """Process one event; raises InvalidError at once if a limit is exceeded."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._document_line = _line(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._frames.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._count(_line(event))
            if not self._frames:
                if _is_empty(event):
                    return
                self._begin_document()
            self._node(event, _line(event))

    def _count(self, line: int) -> None:
        self._nodes += 1
        if self._nodes > self._most_nodes:
            raise _refusal([Problem("", _too_many(self._most_nodes), line)])

    def _begin_document(self) -> None:
        if self._has_document:
            message = "a second document; send one only"
            raise _refusal([*self.problems, Problem("", message, self._document_line)])
        self._has_document = True

    def _node(self, event: Any, line: int) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._key(frame, event, line)
            return
        self._check_anchor_and_tag(event, line)
        if isinstance(event, yaml.ScalarEvent):
            if holds_ruler(event):
                self._problem(self._path(), describe_ruler("----"), line)
            self._place(_scalar(event.value) if event.implicit[0] else event.value, line)
        elif isinstance(event, yaml.AliasEvent):
            self._place(None, line)
        else:
            self._open({} if isinstance(event, yaml.MappingStartEvent) else [], line)

    def _check_anchor_and_tag(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            message = "anchors and aliases are not allowed; write the value out"
            self._problem(self._path(), message, line)
        if getattr(event, "tag", None) is not None:
            message = f"tags ({event.tag[:60]}) are not allowed; quote what is text"
            self._problem(self._path(), message, line)

    def _key(self, frame: _Frame, event: Any, line: int) -> None:
        self._check_anchor_and_tag(event, line)
        if not isinstance(event, yaml.ScalarEvent):
            raise _refusal([*self.problems, Problem(frame.path, "a key must be text", line)])
        key = event.value
        if len(key) > MAX_KEY:
            message = f"a key is longer than {MAX_KEY} characters"
            raise _refusal([*self.problems, Problem(frame.path, message, line)])
        frame.key, frame.key_line, frame.is_duplicate = key, line, key in frame.value
        if frame.is_duplicate:
            first = frame.children[key].line
            self._problem(self._path(), f"duplicate key {key!r} (first on line {first})", line)

    def _open(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if len(self._frames) >= MAX_DEPTH:
            raise _refusal([*self.problems, Problem("", _too_deep(), line)])
        path = self._path()
        children = self._place(value, line).children = {}
        self._frames.append(_Frame(value, children, path))

    def _place(self, value: Any, line: int) -> _Lines:
        """Add a value to the current mapping or list; a duplicate key keeps its first value."""
        if not self._frames:
            self.data, self.lines = value, _Lines(line)
            return self.lines
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            lines = frame.children[len(frame.value)] = _Lines(line)
            frame.value.append(value)
            return lines
        key, frame.key = frame.key, None
        lines = _Lines(frame.key_line)
        if key is not None and not frame.is_duplicate:
            frame.value[key] = value
            frame.children[key] = lines
        return lines

    def _path(self) -> str:
        if not self._frames:
            return ""
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            return f"{frame.path}[{len(frame.value)}]"
        if frame.key is None:  # the path of the key itself
            return frame.path
        return f"{frame.path}.{frame.key}" if frame.path else frame.key

    def _problem(self, path: str, message: str, line: int) -> None:
        self.problems.append(Problem(path, message, line))
        if len(self.problems) >= _MAX_PROBLEMS:
            raise _refusal(self.problems)


def _object(pairs: list[tuple[str, Any]], problems: list[Problem]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data and len(problems) < _MAX_PROBLEMS:
            problems.append(Problem("", f"duplicate key {key[:MAX_KEY]!r}"))
        data.setdefault(key, value)
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _check_size(data: Any, most_nodes: int) -> None:
    """Check the limits on JSON values, and that no text holds half a surrogate pair; without
    recursion."""
    pending = [(data, 1)]
    nodes = 0
    while pending:
        value, depth = pending.pop()
        nodes += 1
        if nodes > most_nodes:
            raise _refusal([Problem("", _too_many(most_nodes))])
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise _refusal([Problem("", _too_deep())])
            if isinstance(value, dict):
                nodes += len(value)
                _check_keys(value)
            children = value.values() if isinstance(value, dict) else value
            pending.extend((child, depth + 1) for child in children)


def _check_keys(value: dict[str, Any]) -> None:
    for key in value:
        _check_text(key)
        if len(key) > MAX_KEY:
            raise _refusal([Problem("", f"a key is longer than {MAX_KEY} characters")])


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise _refusal([Problem("", "not valid Unicode: half of a surrogate pair")]) from exc
