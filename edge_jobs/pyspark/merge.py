"""Statistics over all sites for each window of event time: count, mean speed, counts of each site
and of each type of vehicle; the JSON of `io.speck.jobs.Merge`.

Arguments: `--window 60s`, the length; `--lateness 10m`, how far (event time) a detection may be
behind the newest one of any stream: beyond that it is dropped and counted in `late_dropped`. That is
Spark's watermark: silent streams do not hold it back, so choose it above what a move takes.

A detection (stream and id) counts once in its window, however often it comes, so the state of a
window is its detections. Each batch gives the windows that it has changed, with a `revision` that
rises with what is in them (not by one, as the Java job's does).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from speck_spark import ArgumentFaultError, SpeckJob
from speck_spark.detections import read_detections

_OWN = ("window", "lateness", "streams", "idle-limit", "max-jump", "site")


def merge(records: DataFrame, window_ms: int, lateness_ms: int) -> DataFrame:
    """From rows of detections (`value`, bytes) to rows of results (`value`, JSON)."""
    detections = (
        read_detections(records)
        .where("not coalesce(d.end, false)")
        .select(
            f.timestamp_millis("d.time_ms").alias("at"),
            f.struct("d.stream", "d.id", "d.speed_mps", "d.type").alias("seen"),
        )
        .withWatermark("at", f"{lateness_ms} milliseconds")
    )
    windows = detections.groupBy(f.window("at", f"{window_ms} milliseconds")).agg(
        f.collect_set("seen").alias("seen")
    )
    result = f.struct(
        f.unix_millis("window.start").alias("window_start_ms"),
        f.lit(window_ms).alias("window_ms"),
        f.size("seen").alias("count"),
        _mean_speed().alias("mean_speed_mps"),
        _count_each("left(s.stream, 1)").alias("sites"),
        _count_each("s.type").alias("types"),
        (f.size("seen") - 1).alias("revision"),
    )
    return windows.select(f.to_json(result).alias("value"))


def _mean_speed() -> Column:
    """Added up in a fixed order, so that a batch that is run again gives the same."""
    total = "aggregate(array_sort(seen), 0D, (sum, s) -> sum + s.speed_mps)"
    return f.expr(f"{total} / size(seen)")


def _count_each(key: str) -> Column:
    """How many detections have each value of a key, in the order of the values."""
    keys = f"array_sort(array_distinct(transform(seen, s -> {key})))"
    count = f"size(filter(seen, s -> {key} = k))"
    return f.expr(f"map_from_entries(transform({keys}, k -> struct(k, {count})))")


if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=_OWN)
    try:
        window_ms = job.arguments.get_ms("window", 60_000)
        lateness_ms = job.arguments.get_ms("lateness", 600_000)
    except ArgumentFaultError as error:
        raise SystemExit(str(error)) from error
    job.run(merge(job.read(), window_ms, lateness_ms), mode="update")
