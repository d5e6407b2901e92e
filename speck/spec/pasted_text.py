"""What happens to a document on its way: rulers that are pasted with it, and characters that JSON
escapes in two halves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import yaml

from speck.errors import Problem

_RULER = re.compile(
    r"^[ \t]*(?:([-=_*~\u2013\u2014\u2500])\1{3,}|`{3,}[\w-]*)[ \t\r]*$", re.MULTILINE
)
_DASHES = re.compile(r"(?:^| )-{4,}(?: |$)")

_HIGH, _LOW = r"\\u([dD][89abAB][0-9a-fA-F]{2})", r"\\u([dD][c-fC-F][0-9a-fA-F]{2})"
_PAIR = re.compile(_HIGH + _LOW)
_PAIR_OR_BACKSLASH = re.compile(rf"\\\\|{_HIGH}{_LOW}")
_AS_LONG = r"\\u0041\\u0041"


def find_ruler(source: str, before_line: int | None = None) -> Problem | None:
    """A line of dashes or the like, which separates a listing from the text around it, as the cause
    of a fault; only up to the line after `before_line`, where a parser has stopped."""
    ruler = _RULER.search(source)
    if ruler is None:
        return None
    line = source.count("\n", 0, ruler.start()) + 1
    if before_line is not None and line > before_line + 1:
        return None
    return Problem("", describe_ruler(ruler[0].strip()), line)


def describe_ruler(ruler: str) -> str:
    """What to do about it."""
    shown = ruler if len(ruler) <= 8 else f"{ruler[:8]}..."
    kind = "line of dashes" if ruler[0] in "-\u2013\u2014\u2500" else "line"
    return (
        f"a {kind} ({shown}) is not part of the document, but pasted with it: delete it;"
        " only three dashes (---) may stand alone on a line"
    )


def holds_ruler(event: Any) -> bool:
    """Whether an unquoted text goes on over a line of dashes, which then became part of it."""
    goes_on = event.end_mark.line > event.start_mark.line
    return goes_on and not event.style and _DASHES.search(event.value) is not None


def join_surrogates(source: str, most_events: int, loader: Any) -> str:
    """YAML in which each character that is escaped as in JSON, in two halves (`\\ud83d\\ude00`), as
    YAML has it (`\\U0001f600`). Only in double quotes: elsewhere nothing is an escape."""
    if _PAIR.search(source) is None:
        return source
    pieces, end = [], 0
    readable = _PAIR.sub(_AS_LONG, source)
    for start, stop in _quoted_spans(readable, most_events, loader):
        pieces += [source[end:start], _PAIR_OR_BACKSLASH.sub(_join, source[start:stop])]
        end = stop
    return "".join([*pieces, source[end:]])


def _quoted_spans(source: str, most_events: int, loader: Any) -> Iterator[tuple[int, int]]:
    try:
        for event in islice(yaml.parse(source, Loader=loader), most_events):
            if isinstance(event, yaml.ScalarEvent) and event.style == '"':
                start, end = event.start_mark, event.end_mark
                assert start is not None and end is not None  # a parser sets both
                yield start.index, end.index
    except yaml.YAMLError:
        return  # the caller meets it, too


def _join(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    code = 0x10000 + ((int(match[1], 16) - 0xD800) << 10) + int(match[2], 16) - 0xDC00
    return f"\\U{code:08x}"
