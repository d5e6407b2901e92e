"""Finds bottlenecks: busy and back-pressured jobs, lagging links, full sites."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract
from speck.analyzer.features import JOBS
from speck.analyzer.links import LINKS_RATED
from speck.analyzer.ranking import FULL
from speck.analyzer.sites import SITES_LOADED

BUSY = 0.8
BACK_PRESSURED = 0.1
LAG_FIT = 0.5
"""A lag grows if a line fits it at least this well (r squared); most lags only fluctuate."""
LAG_S = 10.0
"""... and if it has grown by at least this many seconds of the reader's input."""

BOTTLENECKS = Contract(
    "bottlenecks", {"kind": "string", "name": "string", "value": "double", "why": "string"}
)


def find_bottlenecks(
    jobs: DataFrame, links: DataFrame, sites: DataFrame, seconds: float
) -> DataFrame:
    """JOBS, LINKS_RATED and SITES_LOADED of a window of `seconds` -> BOTTLENECKS."""
    step = "find bottlenecks"
    frame = JOBS.select(jobs, step).where("not ended")
    rows = _find_busy_jobs(frame).unionByName(_find_back_pressured_jobs(frame))
    rows = rows.unionByName(_find_lagging_links(LINKS_RATED.select(links, step), seconds))
    rows = rows.unionByName(_find_full_sites(SITES_LOADED.select(sites, step)))
    return BOTTLENECKS.select(rows.orderBy("kind", F.desc("value"), "name"), step)


def _find_busy_jobs(jobs: DataFrame) -> DataFrame:
    share = F.col("utilisation")
    why = F.format_string(
        "%s at %s is busy for %.0f %% of the time: it receives %.0f records/s, its limit is %s",
        "job_name",
        "site",
        share * 100,
        F.coalesce("in_rate", F.lit(0.0)),
        F.coalesce(F.format_string("%.0f", "true_processing_rate"), F.lit("unknown")),
    )
    return jobs.where(share > BUSY).select(*_make_row("job", F.col("job_name"), share, why))


def _find_back_pressured_jobs(jobs: DataFrame) -> DataFrame:
    share = F.col("back_pressured")
    why = F.format_string(
        "%s at %s is back-pressured for %.0f %% of the time: the broker of its sink (%s, at %s)"
        " or the network to it accepts less than the job sends",
        "job_name",
        "site",
        share * 100,
        F.coalesce("sink_topic", F.lit("an unknown topic")),
        F.coalesce("sink_site", F.lit("an unknown site")),
    )
    chosen = jobs.where((share > BACK_PRESSURED) & (F.coalesce("utilisation", F.lit(0.0)) <= BUSY))
    return chosen.select(*_make_row("job", F.col("job_name"), share, why))


def _find_lagging_links(links: DataFrame, seconds: float) -> DataFrame:
    ends = links.select("broker_site", "topic", F.explode("readers").alias("reader"))
    growth = F.col("reader.lag_per_s")
    least = LAG_S * F.coalesce("reader.records_per_s", F.lit(0.0))
    chosen = ends.where(
        (F.col("reader.lag_fit") >= LAG_FIT) & (growth * seconds > F.greatest(F.lit(100.0), least))
    )
    name = F.concat_ws("/", "broker_site", "topic")
    why = F.format_string(
        "%s lags on %s: %d messages wait, %.1f more each second",
        F.coalesce("reader.job_name", "reader.client_id"),
        name,
        "reader.lag",
        growth,
    )
    return chosen.select(*_make_row("link", name, growth, why))


def _find_full_sites(sites: DataFrame) -> DataFrame:
    capacity = F.col("cores") * F.coalesce("pace", F.lit(1.0))
    share = F.col("load") / capacity
    why = F.format_string(
        "%s uses %.2f of %.2f reference core-seconds per second",
        "site",
        "load",
        capacity,
    )
    full_sites = sites.where((capacity > 0) & (share > FULL))
    return full_sites.select(*_make_row("site", F.col("site"), share, why))


def _make_row(kind: str, name: Column, value: Column, why: Column) -> list[Column]:
    return [
        F.lit(kind).alias("kind"),
        name.alias("name"),
        value.alias("value"),
        why.alias("why"),
    ]
