"""Finds bottlenecks: busy and back-pressured jobs, lagging links, full sites."""

from __future__ import annotations

from pyspark.sql import DataFrame

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
    return BOTTLENECKS.query(
        step,
        f"""
        SELECT 'job' AS kind, job_name AS name, utilisation AS value,
          format_string(
            '%s at %s is busy for %.0f %% of the time: it receives %.0f records/s, its limit is %s',
            job_name, site, utilisation * 100, coalesce(in_rate, 0D),
            coalesce(format_string('%.0f', true_processing_rate), 'unknown')) AS why
        FROM {{jobs}} WHERE NOT ended AND utilisation > {BUSY}
        UNION ALL
        SELECT 'job', job_name, back_pressured,
          format_string(
            '%s at %s is back-pressured for %.0f %% of the time: the broker of its sink'
              ' (%s, at %s) or the network to it accepts less than the job sends',
            job_name, site, back_pressured * 100, coalesce(sink_topic, 'an unknown topic'),
            coalesce(sink_site, 'an unknown site'))
        FROM {{jobs}}
        WHERE NOT ended AND back_pressured > {BACK_PRESSURED}
          AND coalesce(utilisation, 0D) <= {BUSY}
        UNION ALL
        SELECT 'link', concat_ws('/', broker_site, topic), reader.lag_per_s,
          format_string(
            '%s lags on %s: %d messages wait, %.1f more each second',
            coalesce(reader.job_name, reader.client_id), concat_ws('/', broker_site, topic),
            reader.lag, reader.lag_per_s)
        FROM (SELECT broker_site, topic, explode(readers) AS reader FROM {{links}})
        WHERE reader.lag_fit >= {LAG_FIT}
          AND reader.lag_per_s * {seconds!r}D
            > greatest(100D, {LAG_S} * coalesce(reader.records_per_s, 0D))
        UNION ALL
        SELECT 'site', site, load / (cores * coalesce(pace, 1D)),
          format_string(
            '%s uses %.2f of %.2f reference core-seconds per second',
            site, load, cores * coalesce(pace, 1D))
        FROM {{sites}}
        WHERE cores * coalesce(pace, 1D) > 0 AND load / (cores * coalesce(pace, 1D)) > {FULL}
        ORDER BY kind, value DESC, name
        """,
        jobs=JOBS.check(jobs, step),
        links=LINKS_RATED.check(links, step),
        sites=SITES_LOADED.check(sites, step),
    )
