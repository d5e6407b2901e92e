"""Rows as a collector has them -> columns of a table, each value checked."""

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


def partitioned(table: Table, rows: Sequence[Row]) -> dict[Partition, pa.Table]:
    """The columns of each partition's rows. Raises InvalidError naming table, column and value.

    Columns that a row leaves out are null.
    """
    named = "composition" in table.partitions
    known = {*table.schema.names, "composition"} if named else set(table.schema.names)
    found: dict[Partition, list[Row]] = {}
    for row in rows:
        if not row.keys() <= known:
            unknown = sorted(set(row) - known)[0]
            raise InvalidError(
                f"cannot take a row for {table.name}: it has no column {unknown!r};"
                f" known are {', '.join(sorted(known))}"
            )
        at = row.get("at")
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise _bad(table, "at", at, "a time with its zone")
        composition = check_composition(row.get("composition"), table) if named else None
        found.setdefault(Partition(day_of(at), composition), []).append(row)
    return {partition: columns(table, told) for partition, told in found.items()}


def columns(table: Table, rows: Sequence[Row]) -> pa.Table:
    """`rows` in the table's schema. Raises InvalidError naming table, column and value."""
    arrays = []
    for field in table.schema:
        values = [row.get(field.name) for row in rows]
        try:
            array = _array(values, field.type)
        except _BAD:
            raise _bad(table, field.name, _first_bad(values, field.type), str(field.type)) from None
        if array.null_count and not field.nullable:
            raise _bad(table, field.name, None, f"{field.type}, always")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=table.schema)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    # Arrow would cut 1.5 to 1 without a word
    if pa.types.is_integer(kind) and any(isinstance(value, (bool, float)) for value in values):
        raise TypeError
    return pa.array(values, kind)


def _first_bad(values: Sequence[Any], kind: pa.DataType) -> object:
    for value in values:
        try:
            _array([value], kind)
        except _BAD:
            return value
    return values


def _bad(table: Table, column: str, value: object, wanted: str) -> InvalidError:
    shown = f"{value}" if isinstance(value, datetime) else f"{value!r:.80}"
    return InvalidError(
        f"cannot take a row for {table.name}: {column} is {shown}; it must be {wanted}"
    )
