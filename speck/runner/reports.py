"""What a program reports of itself, in a file that it replaces as often as it likes.

    {"start": 3, "ready": true, "request": 0, "interval_ms": 1000, "connected": true,
     "problem": null, "records_in": 10, "records_out": 9, "bytes_in": 990, "bytes_out": 891,
     "busy_ms": 12.5, "idle_ms": 990.1, "back_pressured_ms": 0, "left_out": 0, "lost": 0,
     "dropped": 0, "checkpoint_ms": 4, "counters": {"malformed": 1}}

All but `start` (of `SPECK_START`) may be left out. Nothing of it is trusted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

_LARGEST = 1 << 53
_MOST_COUNTERS = 100
_LONGEST = 400
_LONGEST_NAME = 64
_FLAGS = ("ready", "connected")
_NUMBERS = (
    *("request", "interval_ms", "records_in", "records_out", "bytes_in", "bytes_out", "busy_ms"),
    *("idle_ms", "back_pressured_ms", "left_out", "lost", "dropped", "checkpoint_ms"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """None: the program does not say. `request` is the last checkpoint on request that it has
    completed; `interval_ms` lies between the others."""

    ready: bool | None = None
    connected: bool | None = None
    problem: str | None = None
    request: int | None = None
    interval_ms: int | None = None
    records_in: int | None = None
    records_out: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    busy_ms: int | None = None
    idle_ms: int | None = None
    back_pressured_ms: int | None = None
    left_out: int | None = None
    lost: int | None = None
    dropped: int | None = None
    checkpoint_ms: int | None = None
    counters: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, {})}


def parse_report(content: bytes | None, start: int) -> Report | None:
    """The report of a program's `start`; None if there is none that can be read."""
    if content is None:
        return None
    fields: Any = None
    with suppress(ValueError, RecursionError):
        fields = json.loads(content)
    if not isinstance(fields, dict) or fields.get("start") != start:
        return None
    known: dict[str, Any] = {k: fields[k] for k in _FLAGS if isinstance(fields.get(k), bool)}
    known |= {k: n for k in _NUMBERS if (n := _number(fields.get(k))) is not None}
    if isinstance(problem := fields.get("problem"), str) and problem:
        known["problem"] = problem[:_LONGEST]
    if isinstance(counters := fields.get("counters"), dict):
        pairs = (
            (str(k)[:_LONGEST_NAME], _number(v)) for k, v in list(counters.items())[:_MOST_COUNTERS]
        )
        known["counters"] = {k: n for k, n in pairs if n is not None}
    return Report(**known)


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= _LARGEST else None
