"""Asks a cluster's executors whether they can read the dataset."""

from __future__ import annotations

import secrets
from functools import lru_cache

from pyspark.sql import SparkSession

from speck.analyzer.masters import is_local
from speck.errors import InvalidError
from speck.metrics.dataset.storage import UNFINISHED, Storage

_FILES_PER_CORE = 2


@lru_cache(16)
def check_readable(spark: SparkSession, storage: Storage) -> None:
    """Raises InvalidError if the executors of a cluster do not see the files of a folder of this
    machine; a folder that they share with it, they do.

    Small files are written for it, some for each core of the cluster, and counted there. An
    executor that joins later and cannot read fails the analysis: no rows are left out.
    """
    master: str | None = spark.sparkContext.master
    if master is None or is_local(master) or not storage.is_local:
        return
    folder = f".{secrets.token_hex(6)}{UNFINISHED}"
    count = _FILES_PER_CORE * max(spark.sparkContext.defaultParallelism, 2)
    try:
        for number in range(count):
            storage.put_text(f"{folder}/{number}.txt", "x")
        paths = [storage.uri_of(f"{folder}/{number}.txt") for number in range(count)]
        seen = spark.read.option("ignoreMissingFiles", "true").text(paths).count()
    finally:
        storage.remove_folder(folder)
    if seen != count:
        raise InvalidError(
            f"cannot analyse at {master}: its workers cannot read {storage}, a folder of this"
            " machine; set SPECK_METRICS_URI to s3a://bucket/folder, hdfs://host/folder or a folder"
            " that they share with the service"
        )
