"""One analysis: all steps in order, over a span of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer import (
    bottlenecks,
    clean,
    features,
    forecast,
    links,
    ranking,
    rates,
    result,
    sites,
    state,
    units,
)
from speck.analyzer.reading import (
    Span,
    count_bytes,
    find_damaged,
    read,
    retry_without_damaged,
)
from speck.analyzer.request import RANKING, RATING, Report
from speck.analyzer.slicing import Slicing
from speck.analyzer.unit_cache import read_units
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TABLES, TASKS, Table
from speck.metrics.dataset.storage import Storage
from speck.model.values import JsonObject

T = TypeVar("T")

PLANS_EVERY = timedelta(hours=2)
"""Plans are written once an hour, so they are searched from this long before the span."""

SMALL_BYTES = 4 << 20
"""Up to so many bytes of files, some 200 000 rows, compiling a query takes longer than it saves."""

_FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SMALL = _FEW | {"spark.sql.shuffle.partitions": "2"}


def analyse(
    spark: SparkSession,
    storage: Storage,
    span: Span,
    composition: str | None = None,
    report: Report = lambda _: None,
    *,
    by_units: bool = True,
) -> JsonObject:
    """Analyse the dataset in `storage` over `span`.

    Returns `window`, `samples`, `jobs`, `links`, `sites`, `ranking` and `bottlenecks`. With
    `composition` only its jobs and links are included (`_alone`: jobs posted alone); the load of
    sites always includes all jobs. Damaged files are skipped and listed. `report` is called with
    each further step. A long window begins with whole ten minutes, and unless `by_units`
    is false most of its sums are cached (`speck.analyzer.units`).
    """

    left_out: set[str] = set()
    slicing = Slicing.of(span)
    span = slicing.span
    plans_span = span.extend(PLANS_EVERY)

    def read_all(without: Collection[str]) -> list[DataFrame]:
        def read_rows(table: Table) -> DataFrame:
            return read(spark, storage, table, span, None, without)

        def read_units_of(kind: units.UnitTable) -> DataFrame:
            return read_units(spark, storage, kind, slicing, without)

        left_out.update(without)
        steps: list[Callable[[], DataFrame]] = [
            lambda: rates.sum_slices(clean.pair_samples(read_rows(TASKS)), slicing),
            lambda: sites.sum_polls(read_rows(SITES)),
            lambda: links.rate_ends(read_rows(LINKS)),
            lambda: state.choose_newest_plans(
                read(spark, storage, PLANS, plans_span, None, without)
            ),
        ]
        if slicing.is_long and by_units:
            steps = [
                lambda: units.slice_tasks(read_units_of(units.TASK_TABLE), slicing),
                lambda: units.sum_polls(read_units_of(units.SITE_TABLE)),
                lambda: units.rate_ends(read_units_of(units.LINK_TABLE)),
                lambda: state.choose_newest_plans(
                    read_units(spark, storage, units.PLAN_TABLE, Slicing.of(plans_span), without)
                ),
            ]
        return _run_at_once(*(partial(_compute, step) for step in steps))

    with hold_files(
        storage
    ):  # otherwise files that are compacted meanwhile would silently be missing
        is_small = count_bytes(storage, TABLES.values(), plans_span) <= SMALL_BYTES
        with _configure(spark, _SMALL if is_small else {}):
            sliced, polled, ends, plans = retry_without_damaged(read_all, storage, plans_span)
        left_out.update(
            file for table in TABLES.values() for file in find_damaged(storage, table, span)
        )
    report(RATING)
    with configure_for_few_rows(spark):
        of_tasks = _materialise(rates.rate_tasks(sliced))
        rated = _materialise(rates.rate_jobs(of_tasks, sliced))
        used = sites.add_use(polled, rated)
        jobs = _materialise(
            features.describe_jobs(
                rates.choose_incarnations(rated),
                state.wire_jobs(plans, rated),
                used,
                links.find_lags(ends),
            )
        )
        report(RANKING)
        places = _materialise(features.add_loads(used, jobs))
        origins = ranking.find_origins(jobs, places)  # jobs of other compositions may feed this one
        if composition is not None:
            jobs, ends = (f.where(F.col("composition") == composition) for f in (jobs, ends))
        joined = _materialise(links.join_links(jobs, ends))
        rendered = _run_at_once(
            lambda: _sum_samples(of_tasks) | {"damaged_files": sorted(left_out)},
            lambda: result.render_jobs(jobs),
            lambda: result.render_links(joined),
            lambda: result.render_sites(places),
            lambda: result.render_ranking(ranking.rank_jobs(jobs, places, origins)),
            lambda: result.render_rows(
                bottlenecks.find_bottlenecks(jobs, joined, places, span.seconds)
            ),
        )
    window = {
        "from": result.format_time(span.since),
        "to": result.format_time(span.until),
        "seconds": span.seconds,
    }
    names = ("samples", "jobs", "links", "sites", "ranking", "bottlenecks")
    return {"window": window, **dict(zip(names, rendered, strict=True))}


def forecast_links(
    spark: SparkSession, storage: Storage, until: datetime, ahead: timedelta
) -> list[JsonObject]:
    """Forecast the rates of all links for `ahead` from the samples up to `until`: FORECASTS as
    JSON, `at` as RFC 3339."""
    span = Span(until - forecast.HISTORY, until)

    def read_bins(without: Collection[str]) -> DataFrame:
        return _materialise(forecast.bin_rates(read(spark, storage, LINKS, span, None, without)))

    with hold_files(storage):
        bins = retry_without_damaged(read_bins, storage, span)
    forecasts = forecast.forecast(bins, ahead)
    return sorted(
        (row | {"at": result.format_time(row["at"])} for row in result.render_rows(forecasts)),
        key=lambda row: (row["site"], row["topic"]),
    )


def _compute(make: Callable[[], DataFrame]) -> DataFrame:
    return _materialise(make())


def _materialise(frame: DataFrame) -> DataFrame:
    """Compute the frame's rows now and drop its plan, so that each step plans only its own part."""
    return frame.localCheckpoint(eager=True)


def _run_at_once(*tasks: Callable[[], T]) -> list[T]:
    """The results of tasks that mostly wait for Spark, which plans several queries at a time."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(lambda task: task(), tasks))


def configure_for_few_rows(spark: SparkSession) -> AbstractContextManager[None]:
    """Configure Spark for frames of one row per job, whose plans take longer to compile than to
    run."""
    return _configure(spark, _FEW)


@contextmanager
def _configure(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is not None:
                spark.conf.set(name, was)


def _sum_samples(of_tasks: DataFrame) -> JsonObject:
    counted = ("rows", "duplicates", "resets", "gaps", "nan", "contended")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counted]
    return of_tasks.agg(*sums).collect()[0].asDict()
