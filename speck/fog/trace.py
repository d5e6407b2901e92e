"""Traces of detections: what `speck replay` reads and publishes."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speck.errors import InvalidError, NotFoundError, Problem

MAX_SPEED_MPS = 70.0
MAX_LENGTH_M = 30.0
MAX_TIME_MS = 1 << 53
OWN_HEADER = "stream,time_s,sensor_id,vehicle_id,speed_mps,length_m,vehicle_type"
PLAIN_HEADER = OWN_HEADER.removeprefix("stream,")
_UNREADABLE = re.compile("[\ud800-\udfff]")
# float() would also accept "nan", "inf" and "1_0", which are not numbers in JSON.
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,2})?")


@dataclass(frozen=True, slots=True)
class Detection:
    """One vehicle that passed one sensor; its values may be impossible."""

    time_ms: int
    sensor: str
    vehicle: str
    speed_mps: float
    length_m: float
    type: str

    @property
    def possible(self) -> bool:
        """Whether Clean passes it: speed in (0, 70] m/s, length in (0, 30] m, time in range."""
        return (
            0 < self.speed_mps <= MAX_SPEED_MPS
            and 0 < self.length_m <= MAX_LENGTH_M
            and 0 <= self.time_ms <= MAX_TIME_MS
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a trace: its stream, its text, and its detection, if it is well-formed."""

    stream: str
    raw: str
    detection: Detection | None

    @property
    def valid(self) -> bool:
        """Whether the row counts: a possible detection."""
        return self.detection is not None and self.detection.possible


def site_of(stream: str) -> str:
    """The site that a stream belongs to: its first letter."""
    return stream[:1]


def parse_detection(text: str) -> Detection | None:
    """Parse the six columns of a row; None when the row is malformed."""
    columns = [column.strip() for column in text.split(",")]
    # lone surrogates are bytes that were not UTF-8; JSON cannot represent them
    if len(columns) != 6 or not all(columns) or _UNREADABLE.search(text):
        return None
    time, sensor, vehicle, speed, length, kind = columns
    if not all(_NUMBER.fullmatch(number) for number in (time, speed, length)):
        return None
    # Rounded, not cut: 28800.29 s is 28800290 ms although the float lies below it.
    return Detection(round(float(time) * 1000), sensor, vehicle, float(speed), float(length), kind)


def read_trace(path: Path, streams: Mapping[str, str] | None = None) -> list[Row]:
    """Read all rows of a trace in order; `.gz` is decompressed.

    The header line distinguishes two formats. Ours has a leading column `stream`. The plain one has
    six columns, and `streams` maps the prefix of a sensor's id to its stream (the longest match
    counts; "" matches all others, and rows without a sensor).
    Raises NotFoundError when the file does not exist, InvalidError when it is not a trace.
    """
    if not path.is_file():
        reason = "it is no file" if path.exists() else "no such file"
        raise NotFoundError(f"cannot read the trace {path}: {reason}")
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        # a malformed row may contain any bytes, and must be published unchanged
        with opener(path, "rt", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except (OSError, EOFError) as error:
        raise InvalidError(f"cannot read the trace {path}: {error}") from error
    header = lines[0].replace(" ", "") if lines else ""
    if header == OWN_HEADER:
        return list(_own_rows(path, lines))
    if header == PLAIN_HEADER:
        return list(_plain_rows(path, lines, streams or {}))
    raise InvalidError(
        f"cannot read the trace {path}: its first line must be '{OWN_HEADER}' or '{PLAIN_HEADER}'"
    )


def _own_rows(path: Path, lines: list[str]) -> Iterator[Row]:
    for number, line in enumerate(lines[1:], start=2):
        if line:
            stream, comma, raw = line.partition(",")
            if not comma or not stream:
                raise _no_stream(path, number, "the line has no leading column 'stream'")
            yield Row(stream, raw, parse_detection(raw))


def _plain_rows(path: Path, lines: list[str], streams: Mapping[str, str]) -> Iterator[Row]:
    prefixes = sorted(streams, key=len, reverse=True)
    for number, raw in enumerate(lines[1:], start=2):
        if raw:
            columns = raw.split(",")
            sensor = columns[1].strip() if len(columns) > 1 else ""
            prefix = next(
                (candidate for candidate in prefixes if sensor.startswith(candidate)), None
            )
            if prefix is None:
                raise _no_stream(path, number, f"no stream is mapped to sensor '{sensor}'")
            yield Row(streams[prefix], raw, parse_detection(raw))


def _no_stream(path: Path, line: int, reason: str) -> InvalidError:
    return InvalidError(
        f"cannot find the stream of line {line} of {path}: {reason}", [Problem("", reason, line)]
    )
