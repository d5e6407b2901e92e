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

    def check(self, frame: DataFrame, step: str) -> DataFrame:
        """Return the frame, which may have other columns besides.

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
        return frame

    def query(self, step: str, text: str, **frames: DataFrame) -> DataFrame:
        """Select exactly these columns, in this order, from the query `text`, which names `frames`
        in braces. Raises PermanentError for a column of another type.

        Queries are text, since each expression that Python builds costs several calls of the JVM.
        """
        spark = next(iter(frames.values())).sparkSession
        columns = ", ".join(f"`{name}`" for name in self.columns)
        return self.check(spark.sql(f"SELECT {columns} FROM ({text})", None, **frames), step)

    @property
    def ddl(self) -> str:
        """The columns as a schema in Spark's DDL."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())


def contract_of(table: Table) -> Contract:
    """The contract of a dataset's table, including the columns in its folders' names."""
    columns = {field.name: _KINDS[field.type] for field in table.schema}
    return Contract(table.name, columns | dict.fromkeys(table.partitions, "string"))
