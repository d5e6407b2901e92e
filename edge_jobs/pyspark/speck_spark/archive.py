"""Batches of a query as Parquet files, each exactly once: by event day and site, below
`<table>/day=YYYY-MM-DD/site=<site>/`.

A file is named after the query, the batch and what the batch has read:
`batch-<query>-<batch>-<digest>-<n>.parquet`. It is written below a hidden folder and renamed when
it is complete, so that nobody reads half of it; each run of a job has a hidden folder of its own. A
batch that is run again finds its names and leaves what is there: the source gives it the same
records in the same order. The query's id is part of its checkpoint, so that a job that has moved
goes on under it, and one that begins anew has another. The digest keeps records apart if a query
goes back to an older checkpoint and reads others under the same numbers.

A row has three columns besides its own, which together name it: `writer` (the query), `batch` and
`position` in that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from speck_spark.places import Place

STAGING = ".writing"
"""The folder of files that are not complete, one below it for each run of a query: where a site is
cut off, two may run at once. `speck batch compact` removes what killed ones have left there."""


class Archive:
    """The table of an archive that one query writes.

    `read` makes its rows of records (`value`, bytes): the table's own columns, `day` (a date) and
    `site` (text) among them; either may be null. `checkpoint` is the query's.
    """

    def __init__(
        self,
        place: Place,
        table: str,
        checkpoint: Path,
        read: Callable[[DataFrame], DataFrame],
    ) -> None:
        self._place = place
        self._table = table
        self._checkpoint = checkpoint
        self._read = read
        self._run = secrets.token_hex(4)

    def find_staging(self, writer: str) -> str:
        """Where this run writes the files of a query."""
        return f"{STAGING}/{writer}-{self._run}"

    def store(self, records: DataFrame, batch: int) -> None:
        """Store a batch; all of it is in its place when this returns."""
        writer = read_query_id(self._checkpoint)
        staging = self.find_staging(writer)
        numbered = records.select(
            "*",
            f.lit(writer).alias("writer"),
            f.lit(batch).cast("bigint").alias("batch"),
            f.monotonically_increasing_id().alias("position"),
        ).persist()
        try:
            digest = _digest(numbered)
            rows = self._read(numbered).coalesce(1).write.partitionBy("day", "site")
            rows.option("compression", "zstd").mode("overwrite").parquet(
                self._place.uri_of(staging)
            )
        finally:
            numbered.unpersist()
        publish(self._place, staging, self._table, f"batch-{writer}-{batch:09d}-{digest}")


def publish(place: Place, staging: str, table: str, name: str) -> None:
    """Let the files below `staging` appear in the table, in the same folders; those that have
    appeared before stay as they are."""
    files = place.list_files(staging)
    for folder, paths in groupby(files, key=lambda path: path.rpartition("/")[0]):
        for number, path in enumerate(paths):
            final = f"{table}{folder.removeprefix(staging)}/{name}-{number}.parquet"
            if not place.exists(final):
                place.move(path, final)
    place.remove(staging)


def read_query_id(checkpoint: Path) -> str:
    """The id that Spark keeps in a query's checkpoint, without its hyphens."""
    content = json.loads((checkpoint / "metadata").read_text())
    return str(content["id"]).replace("-", "")


def _digest(numbered: DataFrame) -> str:
    """16 hex digits over the records of a batch and their order."""
    total = numbered.agg(f.bit_xor(f.xxhash64("value", "position"))).first()
    number = total[0] if total is not None and total[0] is not None else 0
    return f"{number % (1 << 64):016x}"
