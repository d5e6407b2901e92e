"""Export to one file, and import of one: Parquet, CSV or JSON lines."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from speck.errors import InvalidError, TransientError
from speck.metrics.dataset.files import (
    PART,
    Disk,
    Partition,
    UnfinishedError,
    check_composition,
    day_of,
    file_name,
    put_all,
)
from speck.metrics.dataset.foreign import ignored, is_foreign, tasks_of
from speck.metrics.dataset.parsing import FORMATS, Source, columns
from speck.metrics.dataset.reading import Damaged, empty, not_there, pieces, read
from speck.metrics.dataset.schema import ALONE, TABLES, TASKS, Table


@dataclass(slots=True)
class Exported:
    """What an export wrote and what it could not read."""

    rows: int = 0
    damaged: list[Damaged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import found in a file: `new` of its `rows` were not there before."""

    table: str
    rows: int
    new: int
    since: datetime | None
    until: datetime | None
    ignored: tuple[str, ...] = ()
    """Columns of other collectors that are not taken over."""


def table_named(name: str) -> Table:
    """The table called `name`. Raises InvalidError."""
    try:
        return TABLES[name]
    except KeyError:
        message = f"cannot find table {name!r:.60}: there are {', '.join(TABLES)}"
        raise InvalidError(message) from None


def export(
    root: Path,
    table: Table,
    out: IO[bytes],
    form: str,
    since: datetime | None = None,
    until: datetime | None = None,
    composition: str | None = None,
) -> Exported:
    """Write the rows with `since` <= `at` < `until` to `out`, each once, days in order.

    Raises OSError of `out`.
    """
    done = Exported()
    schema = empty(table).schema
    with _Sheet(out, form, schema) as sheet:
        for piece in pieces(root, table, since, until, composition):
            sheet.write(piece.rows)
            done.rows += piece.rows.num_rows
            done.damaged += [one for one in piece.damaged if one not in done.damaged]
    return done


class _Sheet:
    """A file of one format that is being written."""

    def __init__(self, out: IO[bytes], form: str, schema: pa.Schema) -> None:
        if form not in FORMATS:
            raise InvalidError(f"cannot write {form!r:.40}: it is none of {', '.join(FORMATS)}")
        self._out, self._form = out, form
        self._writer: Any = None
        if form == "parquet":
            self._writer = pq.ParquetWriter(out, schema, compression="zstd", store_schema=False)
        elif form == "csv":
            self._writer = pa_csv.CSVWriter(out, _as_text(schema.empty_table()).schema)

    def __enter__(self) -> _Sheet:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: pa.Table) -> None:
        if self._form == "jsonl":
            for batch in _as_text(rows).to_batches(10_000):
                lines = (json.dumps(_plain(row)) + "\n" for row in batch.to_pylist())
                self._out.write("".join(lines).encode())
        else:
            self._writer.write(rows if self._form == "parquet" else _as_text(rows))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {key: "NaN" if value != value else value for key, value in row.items()}


def _as_text(rows: pa.Table) -> pa.Table:
    """Times as RFC 3339 and lists as JSON."""
    for number, one in enumerate(rows.schema):
        if pa.types.is_timestamp(one.type):
            text = pc.strftime(rows[one.name], format="%Y-%m-%dT%H:%M:%SZ")
            rows = rows.set_column(number, one.name, text.cast(pa.string()))
        elif pa.types.is_list(one.type):
            lists = [None if v is None else json.dumps(v) for v in rows[one.name].to_pylist()]
            rows = rows.set_column(number, one.name, pa.array(lists, pa.string()))
    return rows


def import_file(
    root: Path,
    path: Path,
    name: str,
    form: str,
    table: Table | None = None,
    disk: Disk | None = None,
) -> Imported:
    """Take over the rows of the file `path`, which its user calls `name`; all of them or none.

    Rows that are there already (the same key) are left as they are. Raises InvalidError with every
    fault (line, column, mend), TransientError when the disk takes no file.
    """
    source = Source(path, name, form)
    header = source.header()
    source.check()
    unused: list[str] = []
    if table is None and is_foreign(header):
        table, unused = TASKS, ignored(header)
        rows = tasks_of(source)
    else:
        table = table or _table_of(header, name)
        rows = _own(source, header, table)
    parts = [
        (partition, not_there(table, _there(root, table, partition, told), told))
        for partition, told in _parted(table, rows).items()
    ]
    _put(root, table, [(partition, told) for partition, told in parts if told.num_rows], disk)
    span = pc.min_max(rows["at"]).as_py()
    new = sum(told.num_rows for _, told in parts)
    return Imported(table.name, rows.num_rows, new, span["min"], span["max"], tuple(unused))


def _table_of(header: Sequence[str], name: str) -> Table:
    """The one table whose columns these are."""
    given = set(header)
    able = [
        table
        for table in TABLES.values()
        if {"at", *table.key} <= given <= {*table.schema.names, "composition"}
    ]
    if len(able) == 1:
        return able[0]
    known = "; ".join(f"{t.name}: {', '.join(t.key)}, ..." for t in TABLES.values())
    reason = "its columns fit several tables" if able else "its columns are those of no table"
    raise InvalidError(
        f"cannot import {name}: {reason}; say which table it is, or name the columns as"
        f" docs/metrics.md does ({known})"
    )


def _own(source: Source, header: Sequence[str], table: Table) -> pa.Table:
    """The rows of a file in the table's schema, and their composition."""
    schema = table.schema
    if "composition" in table.partitions:
        schema = schema.append(pa.field("composition", pa.string()))
    rows = _cast(source, header, schema) if source.format == "parquet" else None
    if rows is None:
        rows = columns(source, schema)
    if "composition" not in schema.names:
        return rows
    named = pc.fill_null(rows["composition"], ALONE)
    for composition in pc.unique(named).to_pylist():
        check_composition(composition, table)
    return rows.set_column(schema.get_field_index("composition"), "composition", named)


def _cast(source: Source, header: Sequence[str], schema: pa.Schema) -> pa.Table | None:
    """A Parquet file as a whole; None when it must be looked at row by row."""
    try:
        told = pq.ParquetFile(source.path).read()
        if set(header) - set(schema.names) or not _has_zone(told.schema):
            return None
        arrays = [
            told[one.name].cast(one.type, safe=not pa.types.is_timestamp(one.type))
            if one.name in told.schema.names
            else pa.nulls(told.num_rows, one.type)
            for one in schema
        ]
    except (pa.ArrowException, OSError):
        return None
    missing = any(
        array.null_count and not one.nullable for array, one in zip(arrays, schema, strict=True)
    )
    return None if missing else pa.Table.from_arrays(arrays, schema=schema)


def _has_zone(schema: pa.Schema) -> bool:
    kind = schema.field("at").type if "at" in schema.names else None
    return kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None


def _parted(table: Table, rows: pa.Table) -> dict[Partition, pa.Table]:
    """The rows of each day and composition."""
    days = pc.floor_temporal(rows["at"], unit="day")
    keyed = rows.append_column("day", days)
    parts: dict[Partition, pa.Table] = {}
    for day in pc.unique(days).to_pylist():
        of_day = keyed.filter(pc.equal(keyed["day"], pa.scalar(day, days.type)))
        if "composition" not in rows.schema.names:
            parts[Partition(day_of(day))] = of_day.select(table.schema.names)
            continue
        for composition in pc.unique(of_day["composition"]).to_pylist():
            ours = of_day.filter(pc.equal(of_day["composition"], composition))
            parts[Partition(day_of(day), composition)] = ours.select(table.schema.names)
    return parts


def _there(root: Path, table: Table, partition: Partition, rows: pa.Table) -> pa.Table:
    """What the partition holds of the time of `rows`."""
    span = pc.min_max(rows["at"]).as_py()
    until = span["max"] + datetime.resolution
    return read(root, table, span["min"], until, partition.composition)


def _put(
    root: Path, table: Table, parts: Sequence[tuple[Partition, pa.Table]], disk: Disk | None
) -> None:
    if not parts:
        return
    root.mkdir(parents=True, exist_ok=True)
    files = []
    for partition, rows in parts:
        first = pc.min(rows["at"]).as_py()
        name = file_name(PART, first, secrets.token_hex(6))
        files.append((partition.folder(root, table), name, rows))
    try:
        put_all(root, files, disk or Disk())
    except UnfinishedError as error:
        raise TransientError(
            f"cannot put what was imported in its place below {root}: {error.strerror or error};"
            " it is all there once the service has been started again: do not import it again"
        ) from error
    except OSError as error:
        raise TransientError(
            f"cannot write what is imported below {root}: {error.strerror or error};"
            " nothing was imported: see to the disk and import it again"
        ) from error
