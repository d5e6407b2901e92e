"""The analyzer's continuous mode: Structured Streaming over the dataset's tasks.

The stream tells when there are new rows and up to when; the analysis itself is the same functions
over the last window, so that what it says is what an analysis at that moment says. Files that
compaction wrote hold rows that were seen: they bring no newer time, and nothing is done.
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

EVERY = "2 seconds"
_EPOCH = datetime.fromtimestamp(0, UTC)


def begin(
    spark: SparkSession, root: Path, out: Path, window_s: float, composition: str | None = None
) -> Any:
    """A streaming query that writes `out` anew whenever tasks have newer rows; stop it when done.

    Of files that are there at its start only the newest matters: the first analysis is of the
    window before it.
    """
    folder = root / TASKS.name
    folder.mkdir(parents=True, exist_ok=True)
    # Folders of days that come later are found too; `day` and `composition` are in their names.
    rows = (
        spark.readStream.schema(contract_of(TASKS).ddl)
        .option("latestFirst", "true")
        .option("ignoreCorruptFiles", "true")  # it tells that there is more; `analyse` names them
        .option("ignoreCorruptFiles", "true")  # the analysis names them
        .parquet(str(folder))
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
        result.write(analyse(spark, root, span, composition), out)
        newest = until

    return rows.writeStream.trigger(processingTime=EVERY).foreachBatch(analyse_batch).start()


def follow(
    spark: SparkSession, root: Path, out: Path, window_s: float, composition: str | None = None
) -> None:
    """`begin`, until the process is ended; raises what ends the stream."""
    begin(spark, root, out, window_s, composition).awaitTermination()
