"""Count, mean speed and occupancy of each sensor in each window of event time (`--window 1s`). Each
batch gives the windows that it has changed; Spark's watermark is `--lateness` behind the newest
detection."""

from __future__ import annotations

from pyspark.sql import functions as f
from speck_spark import SpeckJob
from speck_spark.detections import read_detections

if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=("note", "window", "lateness", "streams"))
    window_ms = job.arguments.get_ms("window", 60_000)
    lateness_ms = job.arguments.get_ms("lateness", 600_000)
    detections = (
        read_detections(job.read())
        .where("not coalesce(d.end, false)")
        .select("d.*", f.timestamp_millis("d.time_ms").alias("at"))
        .withWatermark("at", f"{lateness_ms} milliseconds")
    )
    windows = detections.groupBy(f.window("at", f"{window_ms} milliseconds"), f.col("sensor")).agg(
        f.count("*").alias("count"),
        f.avg("speed_mps").alias("mean_speed_mps"),
        f.sum(f.expr("length_m / speed_mps * 1000")).alias("covered_ms"),
    )
    result = f.struct(
        "sensor",
        f.unix_millis("window.start").alias("window_start_ms"),
        f.lit(window_ms).alias("window_ms"),
        "count",
        "mean_speed_mps",
        f.least(f.lit(1.0), f.col("covered_ms") / window_ms).alias("occupancy"),
    )
    job.run(windows.select(f.to_json(result).alias("value")), mode="update")
