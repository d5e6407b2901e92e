"""Counts the records of each key, as state. Each batch gives the keys that have come in it: how
many records there have been so far (`count`), and the number of the last of them (`n`)."""

from __future__ import annotations

from pyspark.sql import functions as f
from speck_spark import SpeckJob

if __name__ == "__main__":
    job = SpeckJob.from_arguments(own=("note",))
    fields = f.from_json(f.col("value").cast("string"), "n bigint, k string")
    counts = (
        job.read()
        .select(fields.alias("d"))
        .groupBy("d.k")
        .agg(f.max("d.n").alias("n"), f.count("*").alias("count"))
    )
    job.run(counts.select(f.to_json(f.struct("n", "k", "count")).alias("value")), mode="update")
