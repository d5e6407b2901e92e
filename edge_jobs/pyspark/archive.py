"""Stores detections, or the global statistics of `merge`, as Parquet files by event day (UTC) and
site, each record exactly once.

Arguments: `--target URI`, the archive (`file:///folder`, `s3a://bucket/folder` or
`hdfs://host:port/folder`); a job that moves goes on there if its new site reaches it.
`--records detections|global`, what the link holds, and the table of the archive.
`--checkpoint-interval 10s`: each batch is a file for each day and site in it.

A record that cannot be read keeps its place: a row with nothing but `record`, as it came, in the
partition of no day and no site. End marks are left out. Nothing is published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from speck_spark import ArgumentFaultError, SpeckJob
from speck_spark.archive import Archive
from speck_spark.detections import parse_detections
from speck_spark.places import open_place

_OWN = ("target", "records")
_INTERVAL_MS = 10_000
_NAME = ("writer", "batch", "position")
_YEAR_10000_MS = 253_402_300_800_000

_DETECTION = ("stream", "id", "time_ms", "sensor", "vehicle", "type", "speed_mps", "length_m")
_STATISTIC = (
    "window_start_ms bigint, window_ms bigint, count bigint, mean_speed_mps double,"
    " sites map<string, bigint>, types map<string, bigint>, revision bigint"
)
_STATISTIC_COLUMNS = ("window_start_ms", "window_ms", "count", "mean_speed_mps", "sites", "types")
_ALL_SITES = "all"


def read_detections(records: DataFrame) -> DataFrame:
    """The rows of table `detections`."""
    is_detection = f.col("is_good") & (f.col("d.time_ms") < _YEAR_10000_MS)
    rows = parse_detections(records).where("not (is_good and coalesce(d.end, false))")
    return rows.select(
        *(f.when(is_detection, f.col(f"d.{name}")).alias(name) for name in _DETECTION),
        f.when(~is_detection, f.col("value")).alias("record"),
        *_NAME,
        _day_of(is_detection, "d.time_ms"),
        f.when(is_detection, f.left("d.stream", f.lit(1))).alias("site"),
    )


def read_statistics(records: DataFrame) -> DataFrame:
    """The rows of table `global`."""
    fields = f.from_json(f.col("value").cast("string"), _STATISTIC)
    rows = records.select("*", fields.alias("d"))
    begins = f.col("d.window_start_ms")
    is_statistic = f.coalesce(
        begins.between(0, _YEAR_10000_MS - 1)
        & (f.col("d.window_ms") > 0)
        & (f.col("d.count") >= 0)
        & f.col("d.mean_speed_mps").isNotNull()
        & f.col("d.sites").isNotNull()
        & f.col("d.types").isNotNull(),
        f.lit(False),
    )
    return rows.select(
        *(f.when(is_statistic, f.col(f"d.{name}")).alias(name) for name in _STATISTIC_COLUMNS),
        f.when(is_statistic, f.coalesce("d.revision", f.lit(0))).alias("revision"),
        f.when(~is_statistic, f.col("value")).alias("record"),
        *_NAME,
        _day_of(is_statistic, "d.window_start_ms"),
        f.when(is_statistic, f.lit(_ALL_SITES)).alias("site"),
    )


def _day_of(is_readable: Column, time_ms: str) -> Column:
    """The day in UTC, whatever the time zone of the session."""
    day = f.expr(f"date_from_unix_date(try_cast({time_ms} div 86400000 as int))")
    return f.when(is_readable, day).alias("day")


TABLES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "detections": read_detections,
    "global": read_statistics,
}


def open_archive(job: SpeckJob) -> Archive:
    """Raises ArgumentFaultError."""
    table = job.arguments.get("records")
    if table not in TABLES:
        raise ArgumentFaultError(f'cannot use --records "{table}": it must be detections or global')
    place = open_place(job.spark, job.arguments.get("target"))
    return Archive(place, table, Path(job.checkpoint), TABLES[table])


if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=_OWN, interval_ms=_INTERVAL_MS)
    try:
        archive = open_archive(job)
    except ArgumentFaultError as error:
        raise SystemExit(str(error)) from error
    job.run_batches(job.read(), archive.store)
