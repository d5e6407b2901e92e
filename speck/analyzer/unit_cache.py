"""Keeps the sums of units (ten minutes, or an hour) in files beside the dataset, until their rows
change.

`<dataset>/.units/<table>/<length>/<unit>-<fingerprint>.parquet` holds the sums of one unit. The
fingerprint is that of the files with its rows (`speck.metrics.dataset.origins`): late rows and
imports change it, and the sums are computed again; maintenance removes the outdated ones. The rest
of a window, less than ten minutes, is computed each time.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer.reading import Span, read
from speck.analyzer.slicing import HOUR, Slicing, list_runs, time_of
from speck.analyzer.units import UnitTable
from speck.metrics.dataset.files import is_finished
from speck.metrics.dataset.origins import UNITS, combine_prints, fingerprint_units
from speck.metrics.dataset.storage import UNFINISHED, Storage

_TICK = timedelta(microseconds=1)
_FILES = 16
"""The most files that are written at a time; each holds several units."""
_NO_ROWS = pa.table({"unit": pa.array([], pa.int64())})


def read_units(
    spark: SparkSession,
    storage: Storage,
    kind: UnitTable,
    slicing: Slicing,
    without: Collection[str] = (),
) -> DataFrame:
    """The units of a window, of which missing ones are added to the cache first, and the sums of
    the rest. While there are damaged files (`without`) nothing is cached."""
    if without:
        return kind.sum_rows(read(spark, storage, kind.table, slicing.span, None, without))
    # computed once: what follows needs units more than once
    units = kind.sum_rows(read(spark, storage, kind.table, slicing.rest)).localCheckpoint()
    prints = fingerprint_units(storage, kind.table, slicing.span.since, slicing.span.until)
    for length, wanted in ((1, slicing.tens), (HOUR, list(slicing.hours))):
        cache = _Cache(spark, storage, kind, length, combine_prints(prints, wanted, length))
        places = cache.fill()
        if places:
            cached = spark.read.schema(kind.contract.ddl).parquet(*places)
            units = units.unionByName(cached)
    return units


@dataclass(frozen=True, slots=True)
class _Cache:
    """The units of one length, in tens of minutes, that a window needs, by their fingerprints."""

    spark: SparkSession
    storage: Storage
    kind: UnitTable
    length: int
    prints: Mapping[int, str]

    def fill(self) -> list[str]:
        """Add what is missing; return the files of all, as Spark names them."""
        present = set(self.storage.list_names(self._folder)) if self.prints else set()
        missing = [unit for unit in self.prints if self._name_of(unit) not in present]
        if missing:
            self._add(missing)
        return [self.storage.uri_of(self._place_of(unit)) for unit in self.prints]

    @property
    def _folder(self) -> str:
        return f"{UNITS}/{self.kind.table.name}/{10 * self.length}min"

    def _name_of(self, unit: int) -> str:
        return f"{unit}-{self.prints[unit]}.parquet"

    def _place_of(self, unit: int) -> str:
        return f"{self._folder}/{self._name_of(unit)}"

    def _add(self, missing: list[int]) -> None:
        """Compute units and write each whole or not at all; another process may be doing the
        same."""
        unfinished = f"{self._folder}/.{secrets.token_hex(8)}{UNFINISHED}"
        for first, end in list_runs(missing, self.length):
            span = Span(time_of(first), time_of(end) - _TICK)
            sums = self.kind.sum_rows(
                read(self.spark, self.storage, self.kind.table, span), self.length
            )
            files = min((end - first) // self.length, _FILES)
            by_unit = sums.withColumn("_unit", F.col("unit")).repartition(files, "_unit")
            by_unit.write.partitionBy("_unit").mode("append").parquet(
                self.storage.uri_of(unfinished)
            )
        # all rows of a unit are in one partition of the frame, and so in one file
        written = {
            int(file.folder.rpartition("=")[2]): file.path
            for file in self.storage.list_files(unfinished)
            if is_finished(file)
        }
        self.storage.map(lambda unit: self._publish(unit, written.get(unit)), missing)
        self.storage.remove_folder(unfinished)

    def _publish(self, unit: int, written: str | None) -> None:
        if written is None:  # files that may have rows of it have none
            self.storage.put(self._place_of(unit), _NO_ROWS, {})
        else:
            self.storage.move(written, self._place_of(unit))
