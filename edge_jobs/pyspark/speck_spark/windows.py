"""Statistics over windows of event time, whose time is that of declared streams with end marks.

Spark's own watermark is one for all streams and does not wait for one that pauses while the job
before it moves. This clock does; it is an operator in the connector's jar, in Java
(`io.speck.spark.windows`), that has the clock, the windows and the JSON of the Java jobs.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from speck_spark.arguments import ArgumentFaultError, Arguments
from speck_spark.reporting import OBSERVED

ARGUMENTS = ("streams", "window", "idle-limit", "lateness", "max-jump", "site")
"""Those of a job with such windows: `edge_jobs/README.md`, "Event time of LocalStats and Merge"."""


def clocked_windows(records: DataFrame, statistic: str, arguments: Arguments) -> DataFrame:
    """From records (`value`, bytes) to the results of windows (`value`, JSON as bytes).

    `statistic` is `local_stats` (count, mean speed and occupancy by sensor) or `merge` (count, mean
    speed and counts by site and type, no detection twice). What is bad, late or repeated is
    counted, and so reported. Without data there is a batch once in an interval, too: streams fall
    silent. Raises ArgumentFaultError.
    """
    spark = records.sparkSession
    jvm: Any = spark.sparkContext._jvm
    own = {name: value for name, value in arguments.values.items() if name in ARGUMENTS}
    try:
        windows = jvm.io.speck.spark.windows.ClockedWindows.of(statistic, own)
    except IllegalArgumentException as error:
        raise ArgumentFaultError(str(error)) from error
    rows = DataFrame(windows.compute(cast(Any, records)._jdf), spark)
    value, *counts = rows.columns
    counted = rows.observe(f"{OBSERVED}{statistic}", *(f.sum(name).alias(name) for name in counts))
    return counted.where(f.col(value).isNotNull()).select(value)
