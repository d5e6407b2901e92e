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
from speck.analyzer.slicing import HOUR, Slicing, list_runs, time_of, unit_of
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
    by_length = {
        length: combine_prints(prints, wanted, length)
        for length, wanted in ((1, slicing.tens), (HOUR, list(slicing.hours)))
    }
    places = _Cache(spark, storage, kind, slicing, by_length).fill()
    if places:
        units = units.unionByName(spark.read.schema(kind.contract.ddl).parquet(*places))
    return units


@dataclass(frozen=True, slots=True)
class _Cache:
    """The units that a window needs, by length (in tens of minutes): their fingerprints."""

    spark: SparkSession
    storage: Storage
    kind: UnitTable
    slicing: Slicing
    prints: Mapping[int, Mapping[int, str]]

    def fill(self) -> list[str]:
        """Add what is missing; return the files of all, as Spark names them."""
        missing: dict[int, list[int]] = {}
        for length, prints in self.prints.items():
            names = set(self.storage.list_names(self._folder_of(length))) if prints else set()
            missing[length] = [u for u in prints if self._name_of(length, u) not in names]
        if any(missing.values()):
            self._add(missing)
        return [
            self.storage.uri_of(self._place_of(length, unit))
            for length, prints in self.prints.items()
            for unit in prints
        ]

    def _folder_of(self, length: int) -> str:
        return f"{UNITS}/{self.kind.table.name}/{10 * length}min"

    def _name_of(self, length: int, unit: int) -> str:
        return f"{unit}-{self.prints[length][unit]}.parquet"

    def _place_of(self, length: int, unit: int) -> str:
        return f"{self._folder_of(length)}/{self._name_of(length, unit)}"

    def _add(self, missing: Mapping[int, list[int]]) -> None:
        """Compute units and write each whole or not at all; another process may be doing the same.
        Rows are read once for units of both lengths."""
        unfinished = f"{self._folder_of(1)}/.{secrets.token_hex(8)}{UNFINISHED}"
        of_row = "unix_micros(at)"
        lengths = [length for length, units in missing.items() if units]
        unit = (
            unit_of(of_row, *lengths) if len(lengths) == 1 else self.slicing.unit_in_window(of_row)
        )
        for first, end in _list_spans(missing):
            span = Span(time_of(first), time_of(end) - _TICK)
            sums = self.kind.sum_rows(read(self.spark, self.storage, self.kind.table, span), unit)
            files = min((end - first) // min(lengths), _FILES)
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
        places = {u: self._place_of(length, u) for length, some in missing.items() for u in some}
        self.storage.map(lambda u: self._publish(places[u], written.get(u)), list(places))
        self.storage.remove_folder(unfinished)

    def _publish(self, place: str, written: str | None) -> None:
        if written is None:  # files that may have rows of it have none
            self.storage.put(place, _NO_ROWS, {})
        else:
            self.storage.move(written, place)


def _list_spans(missing: Mapping[int, list[int]]) -> list[tuple[int, int]]:
    """The spans of missing units (by length), in tens of minutes: the first, and the one after the
    last."""
    spans: list[tuple[int, int]] = []
    for first, end in sorted(run for length, u in missing.items() for run in list_runs(u, length)):
        if spans and spans[-1][1] == first:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((first, end))
    return spans
