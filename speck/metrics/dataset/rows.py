"""Converts rows of the sampler to columns of a table and checks each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from speck.errors import InvalidError
from speck.metrics.dataset.files import Partition, check_composition, day_of
from speck.metrics.dataset.schema import Table

Row = Mapping[str, Any]

_BAD = (pa.ArrowException, OverflowError, TypeError, ValueError)


def partition_rows(table: Table, rows: Sequence[Row]) -> dict[Partition, pa.Table]:
    """Convert rows to columns, by partition. Missing values are null.

    Raises InvalidError, which names the table, the column and the value.
    """
    has_composition = "composition" in table.partitions
    known_columns = (
        {*table.schema.names, "composition"} if has_composition else set(table.schema.names)
    )
    rows_by_partition: dict[Partition, list[Row]] = {}
    for row in rows:
        if not row.keys() <= known_columns:
            unknown = sorted(set(row) - known_columns)[0]
            raise InvalidError(
                f"cannot take a row for {table.name}: it has no column {unknown!r};"
                f" its columns are {', '.join(sorted(known_columns))}"
            )
        at = row.get("at")
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise _make_error(table, "at", at, "a time with its zone")
        composition = check_composition(row.get("composition"), table) if has_composition else None
        rows_by_partition.setdefault(Partition(day_of(at), composition), []).append(row)
    return {
        partition: to_columns(table, its_rows) for partition, its_rows in rows_by_partition.items()
    }


def to_columns(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Convert rows to the table's schema. Raises InvalidError naming table, column and value."""
    arrays = []
    for field in table.schema:
        values = [row.get(field.name) for row in rows]
        try:
            array = _to_array(values, field.type)
        except _BAD:
            raise _make_error(
                table, field.name, _find_bad(values, field.type), str(field.type)
            ) from None
        if array.null_count and not field.nullable:
            raise _make_error(table, field.name, None, f"{field.type}, always")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    # Arrow would silently truncate 1.5 to 1
    if pa.types.is_integer(kind) and any(isinstance(value, (bool, float)) for value in values):
        raise TypeError
    return pa.array(values, kind)


def _find_bad(values: Sequence[Any], kind: pa.DataType) -> object:
    for value in values:
        try:
            _to_array([value], kind)
        except _BAD:
            return value
    return values


def _make_error(table: Table, column: str, value: object, expected: str) -> InvalidError:
    text = f"{value}" if isinstance(value, datetime) else f"{value!r:.80}"
    return InvalidError(
        f"cannot take a row for {table.name}: {column} is {text}; it must be {expected}"
    )
