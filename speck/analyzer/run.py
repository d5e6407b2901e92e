"""One analysis: all steps in order, over a span of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from speck.analyzer import (
    bottlenecks,
    features,
    forecast,
    incarnations,
    links,
    ranking,
    rates,
    result,
    sites,
    state,
    units,
)
from speck.analyzer.data_origins import DataOrigins
from speck.analyzer.ends import find_lags, find_numbers, list_present
from speck.analyzer.reading import (
    SMALL_BYTES,
    Span,
    count_bytes,
    find_damaged,
    read,
    retry_without_damaged,
)
from speck.analyzer.slicing import Slicing
from speck.analyzer.steps import RANKING, RATING, Report
from speck.analyzer.unit_cache import read_units
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import ALONE, LINKS, TABLES
from speck.metrics.dataset.storage import Storage
from speck.model.analysis_result import AnalysisResult, LinkForecast, SampleCounts, Window
from speck.model.values import JsonObject

PLANS_EVERY = timedelta(hours=2)
"""Plans are written once an hour, so they are searched from this long before the span."""

FEW_ROWS = {  # whose plans take longer to compile than to run
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # rows of one partition are joined where they are
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


SAMPLES = ("rows", "duplicates", "resets", "gaps", "nan", "contended")
"""What is counted of the samples of all tasks."""

_LIST_HERE = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "100000"}
"""Files of this machine are looked up at once: a job of Spark's for it would wait for its turn."""


class _Sums(NamedTuple):
    """What the rows of a window add up to: rows of SLICED, SITES_POLLED, ENDS and NEWEST_PLANS."""

    sliced: list[JsonObject]
    polled: list[JsonObject]
    ends: list[JsonObject]
    plans: list[JsonObject]


def analyse(
    spark: SparkSession,
    storage: Storage,
    span: Span,
    composition: str | None = None,
    report: Report = lambda _: None,
    *,
    by_units: bool = True,
) -> AnalysisResult:
    """Analyse the dataset in `storage` over `span`.

    With `composition` only its jobs and links are included (`_alone`: jobs posted alone); the load
    of sites always includes all jobs. Damaged files are skipped and listed. `report` is called with
    each further step. A long window begins with whole ten minutes, and unless `by_units`
    is false most of its sums are cached (`speck.analyzer.units`).
    """
    slicing = Slicing.of(span)
    span = slicing.span
    sums, left_out = _read(spark, storage, slicing, by_units=by_units)
    report(RATING)
    window = Window(result.format_time(span.since), result.format_time(span.until), span.seconds)
    return _analyse_sums(sums, composition, window, left_out, report)


def _read(
    spark: SparkSession, storage: Storage, slicing: Slicing, *, by_units: bool
) -> tuple[_Sums, list[str]]:
    """Sum up a window; also the names of the damaged files, whose rows are missing."""
    left_out: set[str] = set()
    plans_span = slicing.span.extend(PLANS_EVERY)

    with hold_files(
        storage
    ):  # otherwise files that are compacted meanwhile would silently be missing
        is_small = count_bytes(storage, TABLES.values(), plans_span) <= SMALL_BYTES

        def sum_all(without: Collection[str]) -> _Sums:
            left_out.update(without)
            if slicing.is_long and by_units:
                steps = _list_unit_steps(spark, storage, slicing, plans_span, without)
            else:
                steps = _list_steps(spark, storage, slicing, plans_span, without, is_small=is_small)
            return _Sums(*_run_at_once(*(partial(_collect, step) for step in steps)))

        listing = _LIST_HERE if storage.uri.startswith("file:") else {}
        with configured(spark, listing | (FEW_ROWS if is_small else {})):
            sums = retry_without_damaged(sum_all, storage, plans_span)
        for table in TABLES.values():
            left_out.update(find_damaged(storage, table, slicing.span))
    return sums, sorted(left_out)


def _list_steps(
    spark: SparkSession,
    storage: Storage,
    slicing: Slicing,
    plans_span: Span,
    without: Collection[str],
    *,
    is_small: bool,
) -> list[Callable[[], DataFrame]]:
    """What to compute from the rows, of which few are summed where they are read."""

    def sum_rows(kind: units.UnitTable, unit: str = "0L", span: Span = slicing.span) -> DataFrame:
        rows = read(spark, storage, kind.table, span, None, without)
        return kind.sum_rows(rows.coalesce(1) if is_small else rows, unit)

    slice_of_row = f"cast({slicing.index_of('unix_micros(at)')} AS bigint)"
    return [
        lambda: units.slice_tasks(sum_rows(units.TASK_TABLE, slice_of_row), "cast(unit AS int)"),
        lambda: units.sum_polls(sum_rows(units.SITE_TABLE)),
        lambda: units.rate_ends(sum_rows(units.LINK_TABLE)),
        lambda: state.choose_newest_plans(sum_rows(units.PLAN_TABLE, span=plans_span)),
    ]


def _list_unit_steps(
    spark: SparkSession,
    storage: Storage,
    slicing: Slicing,
    plans_span: Span,
    without: Collection[str],
) -> list[Callable[[], DataFrame]]:
    """What to compute from the cached sums of units."""

    def read_units_of(kind: units.UnitTable, slicing: Slicing = slicing) -> DataFrame:
        return read_units(spark, storage, kind, slicing, without)

    return [
        lambda: units.slice_tasks(read_units_of(units.TASK_TABLE), slicing.index_of_unit("unit")),
        lambda: units.sum_polls(read_units_of(units.SITE_TABLE)),
        lambda: units.rate_ends(read_units_of(units.LINK_TABLE)),
        lambda: state.choose_newest_plans(read_units_of(units.PLAN_TABLE, Slicing.of(plans_span))),
    ]


def _analyse_sums(
    sums: _Sums,
    composition: str | None,
    window: Window,
    damaged_files: Sequence[str],
    report: Report,
) -> AnalysisResult:
    """The analysis of a window: in Python, which takes less time for these rows than Spark does to
    plan a query."""
    tasks = rates.rate_tasks(sums.sliced)
    rated = rates.rate_jobs(sums.sliced, tasks)
    used = sites.add_use(sums.polled, rated)
    plans, ends = state.wire_plans(sums.plans), list_present(sums.ends)
    chosen = incarnations.choose_incarnations(rated, plans, find_numbers(ends))
    jobs = features.describe_jobs(chosen, plans, used, find_lags(ends))
    report(RANKING)
    joined = links.join_links(jobs, ends)
    # jobs of other compositions may feed this one
    origins = DataOrigins(jobs, joined, list(plans.values()))
    loaded = result.add_loads(used, jobs)
    wanted = None if composition == ALONE else composition
    if composition is not None:
        jobs = [row for row in jobs if row["composition"] == wanted]
        joined = [each for each in joined if each.composition == wanted]
    return AnalysisResult(
        window=window,
        samples=SampleCounts(
            **{name: sum(task[name] for task in tasks) for name in SAMPLES},
            damaged_files=tuple(damaged_files),
        ),
        jobs=result.make_jobs(jobs),
        links=tuple(joined),
        sites=result.make_sites(loaded),
        ranking=ranking.rank_jobs(jobs, loaded, origins),
        bottlenecks=bottlenecks.find_bottlenecks(jobs, joined, loaded, window.seconds),
    )


def forecast_links(
    spark: SparkSession, storage: Storage, until: datetime, ahead: timedelta
) -> tuple[LinkForecast, ...]:
    """Forecast the rates of all links for `ahead` from the samples up to `until`."""
    span = Span(until - forecast.HISTORY, until)

    def read_bins(without: Collection[str]) -> DataFrame:
        return _materialise(forecast.bin_rates(read(spark, storage, LINKS, span, None, without)))

    with hold_files(storage):
        bins = retry_without_damaged(read_bins, storage, span)
    rows = result.collect_rows(forecast.forecast(bins, ahead))
    forecasts = (LinkForecast(**row | {"at": result.format_time(row["at"])}) for row in rows)
    return tuple(sorted(forecasts, key=lambda each: (each.site or "", each.topic)))


def _collect(make: Callable[[], DataFrame]) -> list[JsonObject]:
    return result.collect_rows(make())


def _materialise(frame: DataFrame) -> DataFrame:
    """Compute the frame's rows now and drop its plan, so that each step plans only its own part."""
    return frame.localCheckpoint(eager=True)


def _run_at_once(*tasks: Callable[[], Any]) -> list[Any]:
    """The results of tasks that mostly wait for Spark, which plans several queries at a time."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(lambda task: task(), tasks))


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Configure Spark until the end of the block."""
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is not None:
                spark.conf.set(name, was)
