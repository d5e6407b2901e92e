"""Keeps the sums of units (ten minutes, or an hour) in files beside the dataset, until their rows
change.

`<dataset>/.units/<table>/<length>/<unit>-<fingerprint>/` holds the sums of one unit. The
fingerprint is that of the files with its rows (`speck.metrics.dataset.origins`): late rows and
imports change it, and the sums are computed again; maintenance removes the outdated ones. The rest
of a window, less than ten minutes, is computed each time.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer.reading import Span, read
from speck.analyzer.slicing import HOUR, Slicing, list_runs, time_of
from speck.analyzer.units import UnitTable
from speck.metrics.dataset.origins import UNITS, combine_prints, fingerprint_units

_TICK = timedelta(microseconds=1)
_FILES = 16
"""The most files that are written at a time; each holds several units."""


def read_units(
    spark: SparkSession,
    root: Path,
    kind: UnitTable,
    slicing: Slicing,
    without: Collection[Path] = (),
) -> DataFrame:
    """The units of a window, of which missing ones are added to the cache first, and the sums of
    the rest. While there are damaged files (`without`) nothing is cached."""
    if without:
        return kind.sum_rows(read(spark, root, kind.table, slicing.span, None, without))
    units = kind.sum_rows(read(spark, root, kind.table, slicing.rest))
    prints = fingerprint_units(root, kind.table, slicing.span.since, slicing.span.until)
    for length, wanted in ((1, slicing.tens), (HOUR, list(slicing.hours))):
        cache = _Cache(spark, root, kind, length, combine_prints(prints, wanted, length))
        places = cache.fill()
        if places:
            cached = spark.read.schema(kind.contract.ddl).parquet(*map(str, places))
            units = units.unionByName(cached)
    return units


@dataclass(frozen=True, slots=True)
class _Cache:
    """The units of one length, in tens of minutes, that a window needs, by their fingerprints."""

    spark: SparkSession
    root: Path
    kind: UnitTable
    length: int
    prints: Mapping[int, str]

    def fill(self) -> list[Path]:
        """Add what is missing; return the folders of all."""
        missing = [unit for unit in self.prints if not self._place_of(unit).is_dir()]
        if missing:
            self._add(missing)
        return [self._place_of(unit) for unit in self.prints]

    @property
    def _folder(self) -> Path:
        return self.root / UNITS / self.kind.table.name / f"{10 * self.length}min"

    def _place_of(self, unit: int) -> Path:
        return self._folder / f"{unit}-{self.prints[unit]}"

    def _add(self, missing: list[int]) -> None:
        """Compute units and write each whole or not at all; another process may be doing the
        same."""
        unfinished = self._folder / f".{secrets.token_hex(8)}.writing"
        for first, end in list_runs(missing, self.length):
            span = Span(time_of(first), time_of(end) - _TICK)
            sums = self.kind.sum_rows(
                read(self.spark, self.root, self.kind.table, span), self.length
            )
            files = min((end - first) // self.length, _FILES)
            by_unit = sums.withColumn("_unit", F.col("unit")).repartition(files, "_unit")
            by_unit.write.partitionBy("_unit").mode("append").parquet(str(unfinished))
        for unit in missing:
            written, place = unfinished / f"_unit={unit}", self._place_of(unit)
            written.mkdir(parents=True, exist_ok=True)  # its files may have no rows of it
            try:
                written.rename(place)
            except OSError:
                if not place.is_dir():
                    raise
        shutil.rmtree(unfinished, ignore_errors=True)
