"""Links: rates of their producers and readers, and the bytes that cross between sites.

A job's end of a link uses the WAN if its engine is at another site than the link's broker.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.features import JOBS, LAGS
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

_SENT = (
    "struct<client_id:string,job_name:string,site:string,records_per_s:double,bytes_per_s:double"
)
LINKS_RATED = Contract(
    "links",
    {
        "composition": "string",
        "broker_site": "string",
        "topic": "string",
        "producers": f"array<{_SENT}>>",
        "readers": f"array<{_SENT},lag:bigint,lag_per_s:double,lag_fit:double>>",
        "wan_bytes_per_s": "double",
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


def join_links(jobs: DataFrame, ends: DataFrame) -> DataFrame:
    """JOBS and ENDS -> LINKS_RATED.

    Includes ends that reported numbers and those that the jobs' plans name without numbers.
    """
    step = "join links"
    link = "composition, broker_site, topic"
    keys = f"{link}, role, job_name"
    numbers = "client_id, records_per_s, lag, lag_per_s, lag_fit"
    producer = "client_id, job_name, engine_site AS site, records_per_s, bytes_per_s"
    reader = f"{producer}, lag, lag_per_s, lag_fit"
    crosses = "job_name IS NOT NULL AND engine_site <> broker_site"
    return LINKS_RATED.query(
        step,
        f"""
        WITH reports AS (
          SELECT * FROM (
            SELECT *,
              row_number() OVER (
                PARTITION BY {keys}, CASE WHEN job_name IS NULL THEN client_id END
                ORDER BY last_at DESC, client_id) AS place
            FROM {{ends}})
          WHERE place = 1
        ),
        of_jobs AS ({_select_end("reader", "source", "in")}
          UNION ALL {_select_end("producer", "sink", "out")}),
        joined AS (
          SELECT {keys}, coalesce(of_jobs.engine_site, reported.engine_site) AS engine_site,
            job_rate, job_bytes, per_record, {numbers}
          FROM of_jobs
          FULL JOIN (
            SELECT {keys}, engine_site, {numbers} FROM reports WHERE job_name IS NOT NULL
          ) AS reported USING ({keys})
          UNION ALL
          SELECT {keys}, engine_site, null, null, null, {numbers}
          FROM reports WHERE job_name IS NULL
        ),
        rated AS (
          SELECT * EXCEPT (records_per_s), coalesce(records_per_s, job_rate) AS records_per_s,
            avg(per_record) OVER (PARTITION BY {link}) AS mean_bytes
          FROM joined
        ),
        sized AS (
          SELECT *, coalesce(job_bytes, records_per_s * mean_bytes) AS bytes_per_s FROM rated
        )
        SELECT {link},
          sort_array(collect_list(CASE WHEN role = 'producer' THEN struct({producer}) END))
            AS producers,
          sort_array(collect_list(CASE WHEN role = 'reader' THEN struct({reader}) END)) AS readers,
          -- if the bytes of a crossing end are unknown, so is the sum
          CASE WHEN count_if({crosses} AND bytes_per_s IS NULL) = 0
            THEN coalesce(sum(CASE WHEN {crosses} THEN bytes_per_s END), 0D) END
            AS wan_bytes_per_s
        FROM sized GROUP BY {link}
        """,
        jobs=JOBS.check(jobs, step),
        ends=ENDS.check(ends, step),
    )


def _select_end(role: str, end: str, way: str) -> str:
    return f"""
        SELECT composition, {end}_site AS broker_site, {end}_topic AS topic, '{role}' AS role,
          job_name, site AS engine_site, {way}_rate AS job_rate, bytes_{way}_rate AS job_bytes,
          bytes_{way}_per_record AS per_record
        FROM {{jobs}} WHERE NOT ended AND {end}_topic IS NOT NULL"""
