"""One analysis: all steps in order, over a span of the dataset."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

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
)
from speck.analyzer.reading import Span, find_damaged, read, retry_without_damaged
from speck.analyzer.request import RANKING, RATING, Report
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TABLES, TASKS
from speck.model.values import JsonObject

PLANS_EVERY = timedelta(hours=2)
"""Plans are written once an hour, so they are searched from this long before the span."""

_ROWS = (TASKS, SITES, LINKS)

_FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def analyse(
    spark: SparkSession,
    root: Path,
    span: Span,
    composition: str | None = None,
    report: Report = lambda _: None,
) -> JsonObject:
    """Analyse the dataset at `root` over `span`.

    Returns `window`, `samples`, `jobs`, `links`, `sites`, `ranking` and `bottlenecks`. With
    `composition` only its jobs and links are included (`_alone`: jobs posted alone); the load of
    sites always includes all jobs. Damaged files are skipped and listed. `report` is called with
    each further step.
    """

    def read_all(without: Collection[Path]) -> tuple[DataFrame, ...]:
        rows = {table.name: read(spark, root, table, span, None, without) for table in _ROWS}
        plans = read(spark, root, PLANS, span.extend(PLANS_EVERY), None, without)
        left_out.update(str(file.relative_to(root)) for file in without)
        return (
            _materialise(rates.sum_slices(clean.pair_samples(rows[TASKS.name]), span)),
            _materialise(sites.sum_polls(rows[SITES.name])),
            _materialise(links.rate_ends(rows[LINKS.name])),
            _materialise(state.choose_newest_plans(plans)),
        )

    left_out: set[str] = set()
    with hold_files(root):  # otherwise files that are compacted meanwhile would silently be missing
        sliced, polled, ends, plans = retry_without_damaged(
            read_all, root, span.extend(PLANS_EVERY)
        )
        left_out.update(
            file for table in TABLES.values() for file in find_damaged(root, table, span)
        )
    report(RATING)
    with _configure_for_few_rows(spark):
        of_tasks = _materialise(rates.rate_tasks(sliced))
        rated = _materialise(rates.rate_jobs(of_tasks, sliced))
        used = _materialise(sites.add_use(polled, rated))
        wired = state.wire_jobs(plans, rated)
        jobs = _materialise(
            features.describe_jobs(
                rates.choose_incarnations(rated), wired, used, links.find_lags(ends)
            )
        )
        report(RANKING)
        places = _materialise(features.add_loads(used, jobs))
        origins = ranking.find_origins(jobs, places)  # jobs of other compositions may feed this one
        if composition is not None:
            jobs, ends = (f.where(F.col("composition") == composition) for f in (jobs, ends))
        joined = _materialise(links.join_links(jobs, ends))
        ranked = ranking.rank_jobs(jobs, places, origins)
        found_bottlenecks = bottlenecks.find_bottlenecks(jobs, joined, places, span.seconds)
        return {
            "window": {
                "from": result.format_time(span.since),
                "to": result.format_time(span.until),
                "seconds": span.seconds,
            },
            "samples": _sum_samples(of_tasks) | {"damaged_files": sorted(left_out)},
            "jobs": result.render_jobs(jobs),
            "links": result.render_links(joined),
            "sites": result.render_sites(places),
            "ranking": result.render_ranking(ranked),
            "bottlenecks": result.render_rows(found_bottlenecks),
        }


def forecast_links(
    spark: SparkSession, root: Path, until: datetime, ahead: timedelta
) -> list[JsonObject]:
    """Forecast the rates of all links for `ahead` from the samples up to `until`: FORECASTS as
    JSON, `at` as RFC 3339."""
    span = Span(until - forecast.HISTORY, until)

    def read_bins(without: Collection[Path]) -> DataFrame:
        return _materialise(forecast.bin_rates(read(spark, root, LINKS, span, None, without)))

    with hold_files(root):
        bins = retry_without_damaged(read_bins, root, span)
    forecasts = forecast.forecast(bins, ahead)
    return sorted(
        (row | {"at": result.format_time(row["at"])} for row in result.render_rows(forecasts)),
        key=lambda row: (row["site"], row["topic"]),
    )


def _materialise(frame: DataFrame) -> DataFrame:
    """Compute the frame's rows now and drop its plan, so that each step plans only its own part."""
    return frame.localCheckpoint(eager=True)


@contextmanager
def _configure_for_few_rows(spark: SparkSession) -> Iterator[None]:
    """Configure Spark for frames of one row per job, whose plans take longer to compile than to
    run."""
    before = {name: spark.conf.get(name) for name in _FEW}
    for name, value in _FEW.items():
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
