"""Sums over the detections of an archive, and the newest of its global statistics, in PySpark.

What is collected grows with sensors, hours and windows, never with detections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from speck.archive.files import list_files
from speck.metrics.dataset.storage import Storage
from traffic.batch.results import Hour, HourKey, WindowPart

MINUTE_MS = 60_000

_NAME = "writer string, batch bigint, position bigint, day date, site string"
_COLUMNS = {
    "detections": "stream string, id bigint, time_ms bigint, sensor string, vehicle string,"
    " type string, speed_mps double, length_m double, record binary, " + _NAME,
    "global": "window_start_ms bigint, window_ms bigint, count bigint, mean_speed_mps double,"
    " sites map<string, bigint>, types map<string, bigint>, revision bigint, record binary, "
    + _NAME,
}
_DETECTION = ("stream", "id", "time_ms")


def read_table(
    spark: SparkSession,
    storage: Storage,
    table: str,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame | None:
    """The rows of `detections` or `global`, of all days or those from `first` to `last`; None if
    the archive has no files of them."""
    files = list_files(storage, table, first, last)
    if not files:
        return None
    reader = spark.read.schema(_COLUMNS[table]).option("basePath", storage.uri_of(table))
    return reader.parquet(*(storage.uri_of(file.path) for file in files))


class Detections:
    """The detections of an archive. The caller closes it: it keeps them in Spark's memory."""

    def __init__(self, rows: DataFrame) -> None:
        """`rows` of table `detections`; the same detection may be there several times."""
        self._rows = rows.where("time_ms is not null")
        columns = ("site", "sensor", "type", "speed_mps", "length_m")
        self._distinct = (
            self._rows.groupBy(*_DETECTION).agg(*(f.first(each).alias(each) for each in columns))
        ).persist()

    def close(self) -> None:
        self._distinct.unpersist()

    def count(self) -> int:
        return self._distinct.count()

    def sum_hours(self, timezone: str) -> dict[HourKey, Hour]:
        """The sums of each sensor in each hour of each weekday, in the time of `timezone`. A site
        is observed in the minutes in which any of its sensors has a detection."""
        local = f.from_utc_timestamp(f.timestamp_millis("time_ms"), timezone)
        rows = self._distinct.select(
            "site",
            "sensor",
            "speed_mps",
            (f.lit(1000.0) * f.col("length_m") / f.col("speed_mps")).alias("covered_ms"),
            f.weekday(local).alias("weekday"),
            f.hour(local).alias("hour"),
            _floor(f.col("time_ms"), MINUTE_MS).alias("minute"),
        )
        keys = ("site", "weekday", "hour")
        observed = rows.groupBy(*keys).agg(f.countDistinct("minute").alias("minutes"))
        sums = rows.groupBy("sensor", *keys).agg(
            f.count("*").alias("count"),
            f.sum("speed_mps").alias("speeds"),
            f.sum("covered_ms").alias("covered_ms"),
        )
        return {
            HourKey(row.site, row.sensor, row.weekday, row.hour): Hour(
                row["count"], row.speeds, row.covered_ms, MINUTE_MS * row.minutes
            )
            for row in sums.join(observed, [*keys]).collect()
        }

    def sum_windows(self, window_ms: int) -> Iterator[WindowPart]:
        """The sums of each site and type of vehicle in each window; a detection counts once in a
        window, by its stream and id."""
        start = _floor(f.col("time_ms"), window_ms)
        once = self._distinct.withColumn("start", start).dropDuplicates(["stream", "id", "start"])
        sums = once.groupBy("start", "site", "type").agg(
            f.count("*").alias("count"), f.sum("speed_mps").alias("speeds")
        )
        for row in sums.collect():
            yield WindowPart(row.start, row.site, row.type, row["count"], row.speeds)

    def sum_late(
        self, starts: Sequence[int], window_ms: int, lateness_ms: int
    ) -> Iterator[WindowPart]:
        """Of some windows, the sums of what may have come too late for them: behind a detection
        that is `lateness_ms` or more after the window's start, in the order in which the archive's
        writer has read them. (That is one window before a job in Flink forgets it: end marks, which
        the archive does not have, move its time to the end of a window.)"""
        rows = self._rows.withColumn("start", _floor(f.col("time_ms"), window_ms))
        spark = rows.sparkSession
        short = f.broadcast(spark.createDataFrame([(each,) for each in starts], "start bigint"))
        batches = rows.join(short, "start").select("writer", "batch").distinct()
        before = (
            Window.partitionBy("writer").orderBy("batch").rowsBetween(Window.unboundedPreceding, -1)
        )
        newest = rows.groupBy("writer", "batch").agg(f.max("time_ms").alias("newest"))
        newest = newest.select("writer", "batch", f.max("newest").over(before).alias("newest"))
        in_batch = (
            Window.partitionBy("writer", "batch")
            .orderBy("position")
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        late = (
            rows.join(batches.join(newest, ["writer", "batch"]), ["writer", "batch"])
            .withColumn("newest", f.greatest("newest", f.max("time_ms").over(in_batch)))
            .join(short, "start")
            .groupBy("start", "stream", "id", "site", "type", "speed_mps")
            # one that came in time, too, was counted
            .agg(f.min(f.coalesce(f.col("newest") - f.col("start"), f.lit(-1))).alias("behind"))
            .where(f.col("behind") >= lateness_ms)
            .groupBy("start", "site", "type")
            .agg(f.count("*").alias("count"), f.sum("speed_mps").alias("speeds"))
        )
        for row in late.collect():
            yield WindowPart(row.start, row.site, row.type, row["count"], row.speeds)


def read_newest(statistics: DataFrame) -> list[Mapping[str, Any]]:
    """The newest revision of each global statistic, as `merge` has published it."""
    columns = ("count", "mean_speed_mps", "sites", "types", "revision")
    age = f.struct("revision", "batch", "position")
    newest = (
        statistics.where("window_start_ms is not null")
        .groupBy("window_start_ms", "window_ms")
        .agg(f.max_by(f.struct(*columns), age).alias("newest"))
        .select("window_start_ms", "window_ms", "newest.*")
    )
    return [row.asDict(recursive=True) for row in newest.collect()]


def count_unreadable(rows: DataFrame) -> int:
    """How many records of a table could not be read."""
    return rows.where("record is not null").count()


def _floor(time_ms: Column, step_ms: int) -> Column:
    return time_ms - f.pmod(time_ms, f.lit(step_ms))
