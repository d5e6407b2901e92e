"""Reads the records of the traffic application; a twin of the Java DetectionReader."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NamedTuple, TypeGuard

_MOST_SPEED, _MOST_LENGTH = 70, 30
_MOST_TIME = 1 << 53
_LONG = 1 << 63


class Detection(NamedTuple):
    """One vehicle at one sensor, or the mark that a stream has ended."""

    stream: str
    time_ms: int
    end: bool
    sensor: str = ""
    speed_mps: float = 0.0
    length_m: float = 0.0


def read_detection(record: bytes, counters: Counter[str]) -> Detection | None:
    """The detection or end mark; None for a bad record, which is counted as `malformed` (no JSON
    object) or `impossible` (nothing that a sensor can have meant)."""
    try:
        fields = json.loads(record, parse_constant=_refuse)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        counters["malformed"] += 1
        return None
    detection = _read_fields(fields)
    if detection is None:
        counters["impossible"] += 1
    return detection


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _read_fields(fields: dict[str, Any]) -> Detection | None:
    stream, time_ms = fields.get("stream"), fields.get("time_ms")
    if not _is_name(stream) or not _is_whole(time_ms) or not 0 <= time_ms <= _MOST_TIME:
        return None
    if fields.get("end") is True:
        return Detection(stream, time_ms, True)
    if not _is_whole(fields.get("id")) or fields["id"] < 1:
        return None
    if not all(_is_name(fields.get(name)) for name in ("sensor", "vehicle", "type")):
        return None
    speed, length = _number(fields.get("speed_mps")), _number(fields.get("length_m"))
    if not (0 < speed <= _MOST_SPEED and 0 < length <= _MOST_LENGTH):
        return None
    return Detection(stream, time_ms, False, fields["sensor"], speed, length)


def _is_name(value: object) -> TypeGuard[str]:
    """Half a surrogate pair can be read (as an escape) but not be written."""
    if not isinstance(value, str) or not value:
        return False
    return value.isascii() or not any(0xD800 <= ord(c) <= 0xDFFF for c in value)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -_LONG <= value < _LONG


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
