"""Keeps the sums of ten minutes ("units") in files beside the dataset, until their rows change.

`<dataset>/.units/<table>/<unit>-<fingerprint>/` holds the sums of one unit. The fingerprint is that
of the files with its rows (`speck.metrics.dataset.origins`): late rows and imports change it, and
the sums are computed again; maintenance removes the outdated ones. Units that a window holds only
in part are computed each time.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer.reading import Span, read
from speck.analyzer.units import UnitTable
from speck.metrics.dataset.origins import UNIT_S, UNITS, fingerprint_units

_EPOCH = datetime.fromtimestamp(0, UTC)
_UNIT = timedelta(seconds=UNIT_S)
_TICK = timedelta(microseconds=1)


def read_units(
    spark: SparkSession, root: Path, kind: UnitTable, span: Span, without: Collection[Path] = ()
) -> DataFrame:
    """The units of the span's rows: those that lie in it from the cache, where those that are
    missing are added first, and those at its ends from rows. Nothing is cached while there are
    damaged files (`without`)."""
    whole = range(-((_EPOCH - span.since) // _UNIT), (span.until - _EPOCH) // _UNIT)
    if not whole or without:
        return kind.sum_rows(read(spark, root, kind.table, span, None, without))
    folder = root / UNITS / kind.table.name
    prints = fingerprint_units(root, kind.table, span.since, span.until)
    wanted = {unit: prints[unit] for unit in whole if unit in prints}
    missing = [unit for unit in wanted if not _folder_of(folder, unit, wanted).is_dir()]
    if missing:
        _add(spark, root, kind, folder, wanted, missing)
    cached = (
        spark.read.schema(kind.contract.ddl).parquet(
            *(str(_folder_of(folder, unit, wanted)) for unit in wanted)
        )
        if wanted
        else spark.createDataFrame([], kind.contract.ddl)
    )
    return _read_ends(spark, root, kind, span, whole).unionByName(cached)


def _folder_of(folder: Path, unit: int, prints: Mapping[int, str]) -> Path:
    return folder / f"{unit}-{prints[unit]}"


def _read_ends(
    spark: SparkSession, root: Path, kind: UnitTable, span: Span, whole: range
) -> DataFrame:
    first, end = _EPOCH + whole.start * _UNIT, _EPOCH + whole.stop * _UNIT
    rows = read(spark, root, kind.table, Span(end, span.until))
    if span.since < first:
        rows = read(spark, root, kind.table, Span(span.since, first - _TICK)).unionByName(rows)
    return kind.sum_rows(rows)


def _add(
    spark: SparkSession,
    root: Path,
    kind: UnitTable,
    folder: Path,
    prints: Mapping[int, str],
    missing: list[int],
) -> None:
    """Compute missing units and write each whole or not at all; another process may be doing the
    same."""
    unfinished = folder / f".{secrets.token_hex(8)}.writing"
    for first, last in _list_runs(missing):
        span = Span(_EPOCH + first * _UNIT, _EPOCH + (last + 1) * _UNIT - _TICK)
        rows = read(spark, root, kind.table, span)
        units = kind.sum_rows(rows).withColumn("_folder", F.col("unit"))
        units = units.repartition(min(last - first + 1, 16), "_folder")
        units.write.partitionBy("_folder").mode("append").parquet(str(unfinished))
    for unit in missing:
        written, place = unfinished / f"_folder={unit}", _folder_of(folder, unit, prints)
        written.mkdir(parents=True, exist_ok=True)  # its files had no rows of it
        try:
            written.rename(place)
        except OSError:
            if not place.is_dir():
                raise
    shutil.rmtree(unfinished, ignore_errors=True)


def _list_runs(units: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last unit of each unbroken run."""
    gaps = [0, *(i for i, (a, b) in enumerate(pairwise(units), 1) if b != a + 1), len(units)]
    for begin, end in pairwise(gaps):
        yield units[begin], units[end - 1]
