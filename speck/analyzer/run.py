"""One analysis: the steps in their order, over a span of the dataset."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from speck.analyzer import bottlenecks, clean, features, links, ranking, rates, result, sites, state
from speck.analyzer.reading import Span, damaged, read, with_sound_files
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TABLES, TASKS
from speck.model.values import JsonObject

PLANS_EVERY = timedelta(hours=2)
"""Plans are told once an hour: so much earlier than the span they are looked for."""

_ROWS = (TASKS, SITES, LINKS)

_FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def analyse(
    spark: SparkSession, root: Path, span: Span, composition: str | None = None
) -> JsonObject:
    """The analysis of the dataset at `root` over `span`: `window`, `samples`, `jobs`, `links`,
    `sites`, `ranking`, `bottlenecks`.

    With `composition` only its jobs and links are told (`_alone`: those of none); what sites do
    is the work of all jobs in any case. Damaged files are left out, and named.
    """

    def read_all(without: Collection[Path]) -> tuple[DataFrame, ...]:
        rows = {table.name: read(spark, root, table, span, None, without) for table in _ROWS}
        plans = read(spark, root, PLANS, span.earlier(PLANS_EVERY), None, without)
        left_out.update(str(file.relative_to(root)) for file in without)
        return (
            _kept(rates.slices(clean.pairs(rows[TASKS.name]), span)),
            _kept(sites.looks(rows[SITES.name])),
            _kept(links.ends(rows[LINKS.name])),
            _kept(state.newest_plans(plans)),
        )

    left_out: set[str] = set()
    with hold_files(root):  # else what is compacted meanwhile would be missing without a word
        sliced, looked, ends, plans = with_sound_files(read_all, root, span.earlier(PLANS_EVERY))
        left_out.update(file for table in TABLES.values() for file in damaged(root, table, span))
    with _for_few_rows(spark):
        of_tasks = _kept(rates.tasks(sliced))
        rated = _kept(rates.jobs(of_tasks, sliced))
        used = _kept(sites.sites(looked, rated))
        wired = state.wiring(plans, rated)
        jobs = _kept(features.features(rates.newest(rated), wired, used, links.lags(ends)))
        places = _kept(features.loads(used, jobs))
        origins = ranking.origins(jobs, places)  # jobs of another composition may feed one's own
        if composition is not None:
            jobs, ends = (f.where(F.col("composition") == composition) for f in (jobs, ends))
        joined = _kept(links.links(jobs, ends))
        ranked = ranking.ranking(jobs, places, origins)
        held = bottlenecks.bottlenecks(jobs, joined, places, span.seconds)
        return {
            "window": {
                "from": result.moment(span.since),
                "to": result.moment(span.until),
                "seconds": span.seconds,
            },
            "samples": _samples(of_tasks) | {"damaged_files": sorted(left_out)},
            "jobs": result.jobs(jobs),
            "links": result.links(joined),
            "sites": result.sites(places),
            "ranking": result.ranking(ranked),
            "bottlenecks": result.rows(held),
        }


def _kept(frame: DataFrame) -> DataFrame:
    """The frame's rows, worked out now, and without the plan that made them: each step plans
    its own part only."""
    return frame.localCheckpoint(eager=True)


@contextmanager
def _for_few_rows(spark: SparkSession) -> Iterator[None]:
    """What follows holds a row a job: compiling its plans would take longer than running them."""
    before = {name: spark.conf.get(name) for name in _FEW}
    for name, value in _FEW.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is not None:
                spark.conf.set(name, was)


def _samples(of_tasks: DataFrame) -> JsonObject:
    counted = ("rows", "duplicates", "resets", "gaps", "nan", "contended")
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in counted]
    return of_tasks.agg(*sums).collect()[0].asDict()
