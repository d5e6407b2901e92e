"""What programs in PySpark learn of a checkpoint, and of why they do not fit it, from a real
Spark."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pyspark_jobs import JOBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Program = Callable[[DataFrame], DataFrame]


class Runs:
    """Runs of programs over the lines of a folder, each in a copy of a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.checkpoint = folder / "query"
        self._inputs = 0
        (folder / "lines").mkdir()

    def run(self, program: Program, mode: str = "update") -> None:
        self._run(program, self.checkpoint, mode)

    def explain(self, program: Program) -> str:
        """Why another program cannot go on."""
        from pyspark.errors import PySparkException
        from speck_spark.failures import explain, list_messages

        copy = self._folder / f"copy-{self._inputs}"
        shutil.copytree(self.checkpoint, copy)
        with pytest.raises(PySparkException) as caught:
            self._run(program, copy, "update")
        return explain(list_messages(caught.value))

    def _run(self, program: Program, checkpoint: Path, mode: str) -> None:
        self._inputs += 1
        (self._folder / f"lines/{self._inputs}").write_text("a\nbb\na\n")
        rows = program(self._spark.readStream.text(str(self._folder / "lines")))
        writer = rows.writeStream.format("noop").outputMode(mode)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(sys, "path", [*sys.path, str(JOBS)])
    return Runs(spark, tmp_path)


@pytest.mark.long
def test_what_has_changed_is_named(runs: Runs) -> None:
    from pyspark.sql import functions as f

    def count(rows: DataFrame) -> DataFrame:
        return rows.groupBy("value").count()

    def begin(text: str) -> str:
        return f"cannot go on from its checkpoint: the program has changed: {text}"

    runs.run(count)
    changes: dict[str, Program] = {
        "its operators with state were stateStoreSave and are": lambda rows: count(
            rows.dropDuplicates(["value"])
        ),
        "the key of its state was (value string) and is (": lambda rows: rows.groupBy(
            f.length("value").alias("letters")
        ).count(),
        "the value of its state was (": lambda rows: rows.groupBy("value").agg(
            f.count("*"), f.max("value")
        ),
    }
    for text, program in changes.items():
        assert runs.explain(program).startswith(begin(text))
    failure = runs.explain(lambda rows: rows.groupBy(f.expr("1 / (length(value) - 1)")).count())
    assert failure.startswith(begin("the key of its state")), failure


@pytest.mark.long
def test_a_failure_of_the_users_code_is_named(runs: Runs) -> None:
    from pyspark.sql import functions as f

    @f.udf("int")
    def divide(text: str) -> int:
        return 1 // (len(text) - 1)

    runs.run(lambda rows: rows, "append")
    assert runs.explain(lambda rows: rows.select(divide("value"))) == (
        "cannot go on: ZeroDivisionError: integer division or modulo by zero"
    )
    assert "x" in runs.explain(lambda rows: rows.selectExpr("raise_error('x')"))


@pytest.mark.long
def test_the_parallelism_of_a_state_is_read(spark: SparkSession, runs: Runs) -> None:
    from speck_spark.states import Checkpoint

    runs.run(lambda rows: rows.groupBy("value").count())
    width = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    assert Checkpoint(runs.checkpoint).find_fault(width) is None
    assert f"parallelism {width}, which" in str(Checkpoint(runs.checkpoint).find_fault(width + 1))
    stateless = runs.checkpoint.with_name("stateless")
    shutil.move(runs.checkpoint, stateless)
    runs.run(lambda rows: rows, "append")
    assert Checkpoint(runs.checkpoint).find_fault(width + 1) is None
