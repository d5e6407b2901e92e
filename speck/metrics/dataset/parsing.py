"""Files that users bring (CSV, JSON lines, Parquet) -> rows whose values are checked.

Every fault is told with its line and column, the first twenty of a file.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import InvalidError, Problem

FORMATS = ("parquet", "csv", "jsonl")
MOST_FAULTS = 20

_TIME = "an RFC 3339 time with its zone, like 2026-03-01T12:00:00Z, or milliseconds since 1970"
_BATCH = 50_000


@dataclass(slots=True)
class Source:
    """A file that is read: `name` is what the user calls it; lines count from 1 (of Parquet:
    rows)."""

    path: Path
    name: str
    format: str
    problems: list[Problem] = field(default_factory=list)

    def header(self) -> list[str]:
        """The names of its columns (of JSON lines: of the first). Raises InvalidError."""
        try:
            return self._header()
        except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            raise self.unreadable(str(error).partition("\n")[0]) from error

    def unreadable(self, reason: str) -> InvalidError:
        """The error for a file that is not of its format."""
        return InvalidError(
            f"cannot read {self.name} as {self.format}: {reason}; give a whole file, and its format"
        )

    def _header(self) -> list[str]:
        if self.format == "parquet":
            return list(pq.read_schema(self.path).names)
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            if self.format == "csv":
                return next(csv.reader(lines), [])
            for line in lines:
                if line.strip():
                    return list(self._object(line, 1) or {})
        return []

    def rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """(line, values by column); faults of a line's form are noted."""
        if self.format == "parquet":
            yield from self._parquet_rows()
            return
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            if self.format == "csv":
                yield from self._csv_rows(csv.DictReader(lines, restkey="", strict=True))
                return
            for number, line in enumerate(lines, 1):
                found = self._object(line, number) if line.strip() else None
                if found is not None:
                    yield number, found

    def fault(self, line: int, column: str, message: str) -> None:
        """Note a fault. Raises InvalidError when there are too many."""
        self.problems.append(Problem(column, message, line))
        if len(self.problems) >= MOST_FAULTS:
            self.check()

    def check(self) -> None:
        """Raises InvalidError if there was any fault."""
        if self.problems:
            first = self.problems[0]
            raise InvalidError(
                f"cannot import {self.name}: line {first.line}, column {first.path}:"
                f" {first.message}; nothing was imported",
                self.problems,
            )

    def _parquet_rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = 0
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row

    def _csv_rows(self, reader: csv.DictReader[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        try:
            for row in reader:
                if "" in row or None in row.values():
                    fault = f"has another number of values than the header ({len(row)} columns)"
                    self.fault(reader.line_num, "", fault)
                else:
                    yield reader.line_num, {k: v if v != "" else None for k, v in row.items()}
        except csv.Error as error:
            self.fault(reader.line_num, "", f"is no CSV: {error}")

    def _object(self, line: str, number: int) -> dict[str, Any] | None:
        try:
            found = json.loads(line)
        except ValueError as error:
            self.fault(number, "", f"is no JSON: {error}")
            return None
        if not isinstance(found, dict):
            self.fault(number, "", "must be a JSON object, one on each line")
            return None
        return found


def columns(source: Source, schema: pa.Schema) -> pa.Table:
    """All rows in `schema`; what a row leaves out is null. Raises InvalidError with all faults."""
    readers = [(f.name, reader(f.type), f.nullable) for f in schema]
    known = set(schema.names)
    tables, batch = [schema.empty_table()], []
    try:
        for line, row in source.rows():
            for name in row.keys() - known:
                source.fault(line, name, f"is no column; known are {', '.join(schema.names)}")
            batch.append({n: value(source, line, n, row.get(n), r, o) for n, r, o in readers})
            if len(batch) == _BATCH:
                source.check()
                tables.append(pa.Table.from_pylist(batch, schema))
                batch = []
    except (UnicodeDecodeError, pa.ArrowException, OSError) as error:
        raise source.unreadable(str(error).partition("\n")[0]) from error
    source.check()
    return pa.concat_tables([*tables, pa.Table.from_pylist(batch, schema)])


Reader = Callable[[Any], Any]


def value(
    source: Source, line: int, column: str, given: Any, read: Reader, optional: bool = True
) -> Any:
    """`given` as `read` reads it; None with the fault noted when it cannot."""
    if given is None:
        if not optional:
            source.fault(line, column, "is missing")
        return None
    try:
        return read(given)
    except ValueError as error:
        source.fault(line, column, f"is {str(given)[:40]!r}; {error}")
        return None


def reader(kind: pa.DataType) -> Reader:
    """How values of an Arrow type are read; it raises ValueError with what is wanted."""
    if pa.types.is_timestamp(kind):
        return a_time
    if pa.types.is_integer(kind):
        return a_whole(2 ** (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return a_number
    if pa.types.is_boolean(kind):
        return a_truth
    return a_list if pa.types.is_list(kind) else a_text


def a_time(given: Any) -> datetime:
    """RFC 3339 with a zone, or milliseconds since 1970."""
    try:
        if isinstance(given, str) and not given.lstrip("-").replace(".", "", 1).isdigit():
            given = datetime.fromisoformat(given)
        if isinstance(given, datetime):
            if given.tzinfo is None:
                raise ValueError
            return given.astimezone(UTC)
        return datetime.fromtimestamp(a_number(given) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"write {_TIME}") from None


def a_whole(bound: int) -> Reader:
    """A whole number below `bound`."""

    def read(given: Any) -> int:
        try:
            number = int(given) if isinstance(given, str) else given
        except ValueError:
            number = None
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= bound:
            raise ValueError(f"write a whole number below {bound}")
        return number

    return read


def a_number(given: Any) -> float:
    """A number; NaN is one."""
    try:
        if isinstance(given, bool) or math.isinf(float(given)):
            raise ValueError
        return float(given)
    except (TypeError, ValueError):
        raise ValueError("write a number") from None


def a_truth(given: Any) -> bool:
    """`true` or `false`."""
    if isinstance(given, bool):
        return given
    if str(given).lower() in ("true", "false"):
        return str(given).lower() == "true"
    raise ValueError("write true or false")


def a_text(given: Any) -> str:
    """A text."""
    if isinstance(given, str):
        return given
    raise ValueError("write a text")


def a_list(given: Any) -> Sequence[str]:
    """A list of texts; in CSV as JSON."""
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        found = None
    if isinstance(found, list) and all(isinstance(one, str) for one in found):
        return found
    raise ValueError('write a list of texts, like ["HASH"]')
