"""One analysis: the steps in their order, over a span of the dataset."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer import bottlenecks, clean, features, links, ranking, rates, result, sites, state
from speck.analyzer.reading import Span, damaged, read
from speck.dataset.schema import LINKS, PLANS, SITES, TABLES, TASKS
from speck.model import JsonObject

PLANS_EVERY = timedelta(hours=2)
"""Plans are told once an hour: so much earlier than the span they are looked for."""


def analyse(
    spark: SparkSession, root: Path, span: Span, composition: str | None = None
) -> JsonObject:
    """The analysis of the dataset at `root` over `span`: `window`, `samples`, `jobs`, `links`,
    `sites`, `ranking`, `bottlenecks`. Of jobs that belong to no composition when `composition`
    is `_alone`, of all when it is None."""
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.cache())
        return frame

    try:
        rows = read(spark, root, TASKS, span, composition)
        sliced = keep(rates.slices(clean.pairs(rows), span))
        of_tasks = keep(rates.tasks(sliced))
        rated = keep(rates.jobs(of_tasks, sliced))
        places = keep(sites.sites(read(spark, root, SITES, span), rated))
        plans = read(spark, root, PLANS, span.earlier(PLANS_EVERY), composition)
        ends = keep(links.ends(read(spark, root, LINKS, span, composition)))
        wired = state.wiring(plans, rated)
        jobs = keep(features.features(rates.newest(rated), wired, places, links.lags(ends)))
        joined = keep(links.links(jobs, ends))
        ranked = ranking.ranking(jobs, places, ranking.origins(jobs, places))
        held = bottlenecks.bottlenecks(jobs, joined, places, span.seconds)
        shown: JsonObject = {
            "window": {
                "from": result.moment(span.since),
                "to": result.moment(span.until),
                "seconds": span.seconds,
            },
            "samples": _samples(of_tasks)
            | {"damaged_files": [f for t in TABLES.values() for f in damaged(root, t, span)]},
            "jobs": result.jobs(jobs),
            "links": result.rows(joined.orderBy("composition", "broker_site", "topic")),
            "sites": result.sites(places),
            "ranking": result.rows(ranked.orderBy("rank")),
            "bottlenecks": result.rows(held),
        }
    finally:
        for frame in kept:
            frame.unpersist()
    return shown


def _samples(of_tasks: DataFrame) -> JsonObject:
    counted = ("rows", "duplicates", "resets", "gaps", "nan", "contended")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counted]
    return of_tasks.agg(*sums).collect()[0].asDict()
