"""The Spark session: local by default, loopback only, without a web interface."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from speck.analyzer.masters import LOCAL, check_master


def start_session(master: str = LOCAL, *, memory: str = "1g", partitions: int = 0) -> SparkSession:
    """Start a session at `master`; `memory` is the driver's heap (the only JVM if local).

    `partitions`: maximum number of partitions of a shuffle. 0: 16 for each core of this machine;
    Spark coalesces small ones, and sorting large ones needs little heap. The caller stops the
    session.
    """
    host = "127.0.0.1" if master.startswith("local") or "127.0.0.1" in master else None
    scratch = Path(tempfile.gettempdir()) / f"speck-spark-{os.getuid()}"
    parts = partitions or 16 * (os.cpu_count() or 2)
    # Standard output is for results: the JVM writes to stderr only.
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(parts),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.parquet.filterPushdown": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "64",
        "spark.sql.autoBroadcastJoinThreshold": str(32 << 20),
    }
    if host:
        options |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
        os.environ.setdefault("SPARK_LOCAL_IP", host)
    builder = SparkSession.builder.appName("speck analyze").master(check_master(master))
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
