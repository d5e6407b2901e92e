"""Contracts: the columns that a step of the analysis expects and returns, checked both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from speck.errors import PermanentError
from speck.metrics.dataset.schema import Table

_KINDS: Mapping[pa.DataType, str] = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.list_(pa.string()): "array<string>",
}


@dataclass(frozen=True, slots=True)
class Contract:
    """A frame's columns by name, each with the name of its Spark type (`bigint`, `double`)."""

    name: str
    columns: Mapping[str, str]

    def select(self, frame: DataFrame, step: str) -> DataFrame:
        """Select exactly these columns, in this order.

        Raises PermanentError, which names the step and the column that is missing or of another
        type.
        """
        types = dict(frame.dtypes)
        for column, kind in self.columns.items():
            actual = types.get(column)
            if actual != kind:
                what = "is missing" if actual is None else f"is {actual}, not {kind}"
                raise PermanentError(
                    f"cannot {step}: column {column!r} of {self.name} {what};"
                    " give it a frame that keeps the contract"
                )
        return frame.select(*self.columns)

    @property
    def ddl(self) -> str:
        """The columns as a schema in Spark's DDL."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())


def contract_of(table: Table) -> Contract:
    """The contract of a dataset's table, including the columns in its folders' names."""
    columns = {field.name: _KINDS[field.type] for field in table.schema}
    return Contract(table.name, columns | dict.fromkeys(table.partitions, "string"))
