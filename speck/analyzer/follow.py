"""The analyzer's continuous mode: Structured Streaming over the dataset's tasks.

The stream only signals new rows and their newest time. The analysis runs the same functions over
the last window, so its result is that of a single analysis at that moment. Files written by
compaction have only known rows: their times are not newer, and nothing is done.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer import result
from speck.analyzer.contracts import contract_of
from speck.analyzer.reading import Span
from speck.analyzer.run import analyse
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.storage import Storage

EVERY = "2 seconds"
_EPOCH = datetime.fromtimestamp(0, UTC)


def begin(
    spark: SparkSession,
    storage: Storage,
    out: Path,
    window_s: float,
    composition: str | None = None,
) -> Any:
    """Start a streaming query that rewrites `out` whenever tasks have newer rows; the caller stops
    it.

    Of the files that exist at its start only the newest matters: the first analysis covers the
    window before it.
    """
    storage.make_folder(TASKS.name)
    # Folders of later days are found too; `day` and `composition` are in their names.
    rows = (
        spark.readStream.schema(contract_of(TASKS).ddl)
        .option("latestFirst", "true")
        .option("ignoreCorruptFiles", "true")  # the analysis reports them
        .option("ignoreMissingFiles", "true")  # compaction: their rows are in another file
        .parquet(storage.uri_of(TASKS.name))
    )
    if composition is not None:
        rows = rows.where(F.col("composition") == composition)
    newest = _EPOCH

    def analyse_batch(new: DataFrame, _: int) -> None:
        nonlocal newest
        latest = new.agg(F.max(F.unix_micros("at"))).collect()[0][0]
        if latest is None or (until := _EPOCH + timedelta(microseconds=latest)) <= newest:
            return
        span = Span(until - timedelta(seconds=window_s), until)
        result.write(analyse(spark, storage, span, composition), out)
        newest = until

    return rows.writeStream.trigger(processingTime=EVERY).foreachBatch(analyse_batch).start()


def follow(
    spark: SparkSession,
    storage: Storage,
    out: Path,
    window_s: float,
    composition: str | None = None,
) -> None:
    """Run `begin` until the process ends; raises the error that stops the stream."""
    begin(spark, storage, out, window_s, composition).awaitTermination()
