"""The ends of links: what the numbers that producers and readers publish add up to."""

from __future__ import annotations

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.features import LAGS
from speck.metrics.dataset.schema import LINKS

ENDED_S = 30.0

END = ("broker_site", "topic", "role", "client_id")
"""What identifies an end of a link."""

_END = {
    "composition": "string",
    "broker_site": "string",
    "topic": "string",
    "role": "string",
    "client_id": "string",
    "job_name": "string",
    "engine_site": "string",
}

ENDS = Contract(
    "ends of links",
    _END
    | {
        "records_per_s": "double",
        "lag": "bigint",  # the newest
        "lag_per_s": "double",  # its growth: slope of a line through all polls
        "lag_fit": "double",  # 0 to 1: how well a line fits (r squared)
        "last_at": "timestamp",
    },
)


def rate_ends(rows: DataFrame) -> DataFrame:
    """LINKS rows -> ENDS. A new epoch of a producer, or a falling number, means that counting
    restarted."""
    step = "rate links"
    keys = ", ".join(END)
    return ENDS.query(
        step,
        f"""
        WITH paired AS (
          SELECT *,
            (unix_micros(at) - unix_micros(lag(at) OVER polls)) / 1e6D AS clock_s,
            messages - lag(messages) OVER polls AS sent,
            epoch <=> lag(epoch) OVER polls AS is_same
          FROM {{rows}} WINDOW polls AS (PARTITION BY {keys} ORDER BY at, epoch, messages)
        ),
        judged AS (
          SELECT *,
            is_same AND sent >= 0 AND clock_s > 0 AS is_good,
            -- a row may be in two files
            CASE WHEN coalesce(clock_s > 0, true) THEN cast(lag AS double) END AS one_lag,
            unix_micros(at) / 1e6D AS at_s
          FROM paired
        ),
        rated AS (
          SELECT {keys},
            max_by(composition, at) AS composition,
            max_by(job_name, at) AS job_name,
            max_by(engine_site, at) AS engine_site,
            sum(CASE WHEN is_good THEN sent END) AS good_sent,
            sum(CASE WHEN is_good THEN clock_s END) AS good_s,
            max_by(lag, CASE WHEN one_lag IS NOT NULL THEN at END) AS lag,
            regr_slope(one_lag, at_s) AS lag_per_s,
            regr_r2(one_lag, at_s) AS lag_fit,
            max(at) AS last_at
          FROM judged GROUP BY {keys}
        )
        {select_present("rated")}
        """,
        rows=contract_of(LINKS).check(rows, step),
    )


def select_present(rated: str) -> str:
    """A query: the ends that still exist, with their rates. Each poll of a broker reports all its
    ends, so one that is missing exists no longer."""
    return f"""
        SELECT *, CASE WHEN good_s > 0 THEN good_sent / good_s END AS records_per_s
        FROM (SELECT *, max(last_at) OVER (PARTITION BY broker_site) AS newest_at FROM {rated})
        WHERE NOT unix_micros(newest_at) - unix_micros(last_at) > {ENDED_S} * 1e6D"""


def find_lags(ends: DataFrame) -> DataFrame:
    """ENDS -> LAGS: the lag of each reading job."""
    step = "find lags"
    return LAGS.query(
        step,
        """
        SELECT composition, job_name, max_by(lag, last_at) AS lag FROM {ends}
        WHERE role = 'reader' AND job_name IS NOT NULL
        GROUP BY composition, job_name
        """,
        ends=ENDS.check(ends, step),
    )
