"""Parses files from users (CSV, JSON lines, Parquet) into rows and checks every value.

Each fault is reported with its line and column, up to twenty in a file.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speck.errors import InvalidError, Problem
from speck.metrics.dataset.schema import FORMER_NAMES
from speck.model.values import cut

_FULL_WIDTH = "\uff1d\uff0b\uff0d\uff20"  # =, +, - and @
FORMULA = rf"^([=+\-@{_FULL_WIDTH}\t\r\n'])"
"""How a text of a CSV file begins that a spreadsheet would compute (some do so with the full-width
forms, too) or cut, or that an export has begun with an apostrophe."""

FORMATS = ("parquet", "csv", "jsonl")
MOST_FAULTS = 20

_TIME = "an RFC 3339 time with its zone, like 2026-03-01T12:00:00Z, or milliseconds since 1970"
LONGEST_MESSAGE = 500
BATCH = 20_000
"""Rows that are held in memory at once."""


@dataclass(slots=True)
class Source:
    """A file to import. `name` is the user's name for it; lines (in Parquet: rows) count from 1."""

    path: Path
    name: str
    format: str
    problems: list[Problem] = field(default_factory=list)

    def read_header(self) -> list[str]:
        """Read the names of the columns (in JSON lines those of the first). Raises InvalidError."""
        try:
            return self._read_header()
        except (OSError, pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            raise self.make_error(str(error).partition("\n")[0]) from error

    def make_error(self, reason: str) -> InvalidError:
        """The error for a file that does not have its format."""
        return InvalidError(
            f"cannot read {self.name} as {self.format}: {reason[:LONGEST_MESSAGE]};"
            " check that the file is complete and has that format"
        )

    def _read_header(self) -> list[str]:
        if self.format == "parquet":
            return list(pq.read_schema(self.path).names)
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            if self.format == "csv":
                return next(csv.reader(lines), [])
            for line in lines:
                if line.strip():
                    return list(self._parse_object(line, 1) or {})
        return []

    def read_rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Read (line, values by column); malformed lines are noted as faults."""
        if self.format == "parquet":
            yield from self._read_parquet_rows()
            return
        with self.path.open(encoding="utf-8-sig", newline="") as lines:
            if self.format == "csv":
                yield from self._read_csv_rows(csv.DictReader(lines, restkey="", strict=True))
                return
            for number, line in enumerate(lines, 1):
                values = self._parse_object(line, number) if line.strip() else None
                if values is not None:
                    yield number, values

    def record_fault(self, line: int, column: str, message: str) -> None:
        """Note a fault; names of columns may have megabytes. Raises InvalidError if there are too
        many."""
        self.problems.append(Problem(cut(column), message[:LONGEST_MESSAGE], line))
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

    def _read_parquet_rows(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = 0
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row

    def _read_csv_rows(
        self, reader: csv.DictReader[str]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        try:
            for row in reader:
                if "" in row or None in row.values():
                    fault = f"does not have as many values as the header ({len(row)} columns)"
                    self.record_fault(reader.line_num, "", fault)
                else:
                    yield reader.line_num, {k: _unquote_cell(v) for k, v in row.items()}
        except csv.Error as error:
            self.record_fault(reader.line_num, "", f"is not valid CSV: {error}")

    def _parse_object(self, line: str, number: int) -> dict[str, Any] | None:
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError) as error:
            self.record_fault(number, "", f"is not valid JSON: {error}")
            return None
        if not isinstance(parsed, dict):
            self.record_fault(number, "", "must be a JSON object, one on each line")
            return None
        return parsed


def _unquote_cell(cell: str) -> str | None:
    """A cell of a CSV file as it was before its export; None for an empty one."""
    if cell.startswith("'") and re.match(FORMULA, cell[1:]):
        return cell[1:]
    return cell or None


def parse_columns(source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
    """Parse all rows into `schema`, some thousand at a time; missing values are null. Raises
    InvalidError with all faults."""
    readers = [(f.name, choose_reader(f.type), f.nullable) for f in schema]
    names, columns = set(schema.names), ", ".join(schema.names)
    batch: list[dict[str, Any]] = []
    try:
        for line, row in source.read_rows():
            for name in row.keys() - names:
                now = FORMER_NAMES.get(name)
                remedy = f"it is called {now} now" if now in names else f"the columns are {columns}"
                source.record_fault(line, name, f"is not a column; {remedy}")
            batch.append({n: parse_value(source, line, n, row.get(n), r, o) for n, r, o in readers})
            if len(batch) == BATCH:
                source.check()
                yield pa.Table.from_pylist(batch, schema)
                batch = []
    except (UnicodeDecodeError, pa.ArrowException, OSError) as error:
        raise source.make_error(str(error).partition("\n")[0]) from error
    source.check()
    yield pa.Table.from_pylist(batch, schema)


Reader = Callable[[Any], Any]


def parse_value(
    source: Source, line: int, column: str, raw: Any, reader: Reader, optional: bool = True
) -> Any:
    """Parse `raw` with `reader`; if that fails, note the fault and return None."""
    if raw is None:
        if not optional:
            source.record_fault(line, column, "is missing")
        return None
    try:
        return reader(raw)
    except ValueError as error:
        source.record_fault(line, column, f"is {str(raw)[:40]!r}; {error}")
        return None


def choose_reader(kind: pa.DataType) -> Reader:
    """The parser for values of an Arrow type; it raises ValueError with what is expected."""
    if pa.types.is_timestamp(kind):
        return parse_time
    if pa.types.is_integer(kind):
        return make_int_parser(2 ** (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return parse_number
    if pa.types.is_boolean(kind):
        return parse_bool
    return parse_list if pa.types.is_list(kind) else parse_text


def parse_time(raw: Any) -> datetime:
    """Parse RFC 3339 with a zone, or milliseconds since 1970."""
    try:
        if isinstance(raw, str) and not raw.lstrip("-").replace(".", "", 1).isdigit():
            raw = datetime.fromisoformat(raw)
        if isinstance(raw, datetime):
            if raw.tzinfo is None:
                raise ValueError
            return raw.astimezone(UTC)
        return datetime.fromtimestamp(parse_number(raw) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"write {_TIME}") from None


def make_int_parser(bound: int) -> Reader:
    """A parser for integers whose absolute value is below `bound`."""

    def parse_int(raw: Any) -> int:
        try:
            number = int(raw) if isinstance(raw, str) else raw
        except ValueError:
            number = None
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= bound:
            raise ValueError(f"write a whole number below {bound}")
        return number

    return parse_int


def parse_number(raw: Any) -> float:
    """Parse a number; NaN is one."""
    try:
        if isinstance(raw, bool) or math.isinf(float(raw)):
            raise ValueError
        return float(raw)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("write a number") from None


def parse_bool(raw: Any) -> bool:
    """Parse `true` or `false`."""
    if isinstance(raw, bool):
        return raw
    if str(raw).lower() in ("true", "false"):
        return str(raw).lower() == "true"
    raise ValueError("write true or false")


def parse_text(raw: Any) -> str:
    """Check a string."""
    if isinstance(raw, str) and _is_unicode(raw):
        return raw
    raise ValueError("write a text")


def parse_list(raw: Any) -> Sequence[str]:
    """Parse a list of strings; in CSV it is JSON."""
    try:
        parsed = json.loads(raw) if isinstance(raw, str) else raw
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list) and all(
        isinstance(one, str) and _is_unicode(one) for one in parsed
    ):
        return parsed
    raise ValueError('write a list of texts, like ["HASH"]')


def _is_unicode(text: str) -> bool:
    """Whether it can be written: JSON may hold halves of surrogate pairs."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
