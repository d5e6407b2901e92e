"""Exports to and imports from a single file: Parquet, CSV or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from speck.errors import InvalidError
from speck.metrics.dataset.arrivals import Arrivals
from speck.metrics.dataset.files import check_composition
from speck.metrics.dataset.parsing import BATCH, FORMATS, FORMULA, Source, parse_columns
from speck.metrics.dataset.reading import Damaged, make_empty, read_pieces
from speck.metrics.dataset.schema import ALONE, FORMER_NAMES, TABLES, Table
from speck.metrics.dataset.storage import Storage


@dataclass(slots=True)
class ExportResult:
    """Number of exported rows, and the files that could not be read."""

    rows: int = 0
    damaged: list[Damaged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did: `new` of the file's `rows` were not in the dataset before."""

    table: str
    rows: int
    new: int
    since: datetime | None
    until: datetime | None


def find_table(name: str) -> Table:
    """The table called `name`. Raises InvalidError."""
    try:
        return TABLES[name]
    except KeyError:
        message = f"cannot find table {name!r:.60}: there are {', '.join(TABLES)}"
        raise InvalidError(message) from None


def export(
    storage: Storage,
    table: Table,
    out: IO[bytes],
    form: str,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> ExportResult:
    """Write each row with `since` <= `at` < `until` to `out` once, ordered by day.

    Raises OSError if `out` fails.
    """
    result = ExportResult()
    schema = make_empty(table).schema
    with _Sheet(out, form, schema) as sheet:
        for piece in read_pieces(storage, table, since, until, composition):
            sheet.write(piece.rows)
            result.rows += piece.rows.num_rows
            result.damaged += [file for file in piece.damaged if file not in result.damaged]
    return result


class _Sheet:
    """Writes rows to a file in one format."""

    def __init__(self, out: IO[bytes], form: str, schema: pa.Schema) -> None:
        if form not in FORMATS:
            raise InvalidError(f"cannot write {form!r:.40}: the formats are {', '.join(FORMATS)}")
        self._out, self._form = out, form
        self._writer: Any = None
        if form == "parquet":
            self._writer = pq.ParquetWriter(out, schema, compression="zstd", store_schema=False)
        elif form == "csv":
            self._writer = pa_csv.CSVWriter(out, _to_text(schema.empty_table()).schema)

    def __enter__(self) -> _Sheet:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: pa.Table) -> None:
        if self._form == "jsonl":
            for batch in _to_text(rows).to_batches(10_000):
                lines = (json.dumps(_to_plain(row)) + "\n" for row in batch.to_pylist())
                self._out.write("".join(lines).encode())
        else:
            self._writer.write(rows if self._form == "parquet" else _neutralise(_to_text(rows)))


def _neutralise(rows: pa.Table) -> pa.Table:
    """Begin texts that a spreadsheet would compute with an apostrophe, which an import takes
    away. Topics and client ids are what users of a broker choose."""
    for number, column in enumerate(rows.schema):
        if pa.types.is_string(column.type):
            cells = pc.replace_substring_regex(rows[column.name], FORMULA, r"'\1")
            rows = rows.set_column(number, column.name, cells)
    return rows


def _to_plain(row: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not have, by a string."""
    return {key: "NaN" if value != value else value for key, value in row.items()}


def _to_text(rows: pa.Table) -> pa.Table:
    """Convert times to RFC 3339 and lists to JSON."""
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            text = pc.strftime(rows[column.name], format="%Y-%m-%dT%H:%M:%SZ")
            rows = rows.set_column(number, column.name, text.cast(pa.string()))
        elif pa.types.is_list(column.type):
            lists = [None if v is None else json.dumps(v) for v in rows[column.name].to_pylist()]
            rows = rows.set_column(number, column.name, pa.array(lists, pa.string()))
    return rows


def import_file(
    storage: Storage,
    path: Path,
    name: str,
    form: str,
    table: Table | None = None,
) -> ImportResult:
    """Import all rows of the file `path`, which its user calls `name`, or none, some thousand rows
    at a time.

    Rows whose key exists are left unchanged. Raises InvalidError, which lists every fault (line,
    column, remedy), and TransientError if the disk fails.
    """
    source = Source(path, name, form)
    header = source.read_header()
    source.check()
    table = table or _table_of(header, name)
    batches = _read_own_rows(source, header, table)
    arrivals = Arrivals(storage, table, name)
    if form == "parquet":  # before any is read
        arrivals.refuse_too_many(pq.read_metadata(path).num_rows)
    try:
        for rows in batches:
            arrivals.add(rows)
        arrivals.publish()
    except BaseException:
        arrivals.discard()
        raise
    return ImportResult(table.name, arrivals.rows, arrivals.new, arrivals.since, arrivals.until)


def _table_of(header: Sequence[str], name: str) -> Table:
    """Find the one table that has these columns."""
    names = set(header)
    tables = [
        table
        for table in TABLES.values()
        if {"at", *table.key} <= names <= {*table.schema.names, "composition"}
    ]
    if len(tables) == 1:
        return tables[0]
    known_keys = "; ".join(f"{t.name}: {', '.join(t.key)}, ..." for t in TABLES.values())
    reason = "its columns fit several tables" if tables else "its columns fit no table"
    known = {"composition"}.union(*(table.schema.names for table in TABLES.values()))
    strange = ", ".join(map(_describe_strange, sorted(names - known)))
    reason += f" ({strange})" if strange else ""
    raise InvalidError(
        f"cannot import {name}: {reason}; name the table, or name the columns as in"
        f" docs/metrics.md ({known_keys})"
    )


def _describe_strange(column: str) -> str:
    """A column that no table has; cut, since a file may hold anything."""
    now = FORMER_NAMES.get(column)
    return f"column {column} is called {now} now" if now else f"none has a column {column[:60]!r}"


def _read_own_rows(source: Source, header: Sequence[str], table: Table) -> Iterator[pa.Table]:
    """Read the rows of a file in the table's schema, with their composition."""
    schema = table.schema
    if "composition" in table.partitions:
        schema = schema.append(pa.field("composition", pa.string()))
    if source.format == "parquet" and _can_cast(source, header, schema):
        batches = _cast_batches(source, schema)
    else:
        batches = parse_columns(source, schema)
    for rows in batches:
        if "composition" not in schema.names:
            yield rows
            continue
        compositions = pc.fill_null(rows["composition"], ALONE)
        for composition in pc.unique(compositions).to_pylist():
            check_composition(composition, table)
        index = schema.get_field_index("composition")
        yield rows.set_column(index, "composition", compositions)


def _can_cast(source: Source, header: Sequence[str], schema: pa.Schema) -> bool:
    """Whether a Parquet file has rows that can be cast; else it is parsed, to name the faults."""
    try:
        if set(header) - set(schema.names) or not _has_zone(pq.read_schema(source.path)):
            return False
        for rows in _cast_batches(source, schema):
            columns = zip(rows.columns, schema, strict=True)
            if any(array.null_count and not field.nullable for array, field in columns):
                return False
    except (pa.ArrowException, OSError):
        return False
    return True


def _cast_batches(source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
    names = pq.read_schema(source.path).names
    texts = [f.name for f in schema if pa.types.is_string(f.type) and f.name in names]
    # a text that repeats is held once, until its batch is cast
    with pq.ParquetFile(source.path, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH, use_threads=False):
            arrays = [
                batch[field.name].cast(field.type, safe=not pa.types.is_timestamp(field.type))
                if field.name in batch.schema.names
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.Table.from_arrays(arrays, schema=schema)


def _has_zone(schema: pa.Schema) -> bool:
    kind = schema.field("at").type if "at" in schema.names else None
    return kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None
