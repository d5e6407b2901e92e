"""How a session of Spark has to be set up for a job."""

from __future__ import annotations

from pyspark.sql import SparkSession

SETTINGS = {
    # what is acknowledged at a broker must outlive a power failure
    "spark.sql.streaming.checkpointFileManagerClass": "io.speck.spark.files.SyncedFileManager",
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """The builder, with what jobs need."""
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder
