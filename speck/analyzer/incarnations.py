"""Chooses the incarnation that represents each job, and averages the rates of all of them."""

from __future__ import annotations

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract
from speck.analyzer.rates import JOBS_RATED, name_all
from speck.analyzer.state import PLANS_WIRED

TRUSTED_AFTER_S = 60.0
"""After this long a new incarnation represents the job even without enough evidence of its cost."""

MEAN_RATES = ("in_rate", "out_rate", "bytes_in_rate", "bytes_out_rate")
COVERED = 0.9
"""A job that was measured for this share of the time since it was first seen did not pause."""

JOBS_CHOSEN = Contract(
    "chosen incarnations",
    {
        **JOBS_RATED.columns,
        **{f"mean_{rate}": "double" for rate in MEAN_RATES},
        "covered": "double",
    },
)
"""The incarnation that represents each job. Means are of all incarnations that read and write the
same topics: records (or bytes) of the window by the time since the job was first seen. So a pause
does not inflate them, as what a job catches up with after it does its newest incarnation's rates.
`covered`: the share (0 to 1) of that time that was measured."""


def choose_incarnations(rated: DataFrame, plans: DataFrame) -> DataFrame:
    """JOBS_RATED and PLANS_WIRED -> JOBS_CHOSEN: choose the incarnation that represents each job.

    That is the newest one. While it has too few samples for a cost, it is the newest one at the
    same site that has a cost. After `TRUSTED_AFTER_S` the newest one counts however little it did,
    since an older one may have been another program. `last_at` is that of the job, of any
    incarnation.
    """
    step = "choose incarnations"
    means = {f"mean_{rate}": _mean_over_incarnations(rate) for rate in MEAN_RATES}
    return JOBS_CHOSEN.query(
        step,
        f"""
        WITH wired AS (
          SELECT rated.*, source_topic, sink_topic
          FROM {{rated}} AS rated
          LEFT JOIN (SELECT engine_job_id, source_topic, sink_topic FROM {{plans}})
            USING (engine_job_id)
        ),
        located AS (
          SELECT *,
            site <=> max_by(site, last_at) OVER (PARTITION BY composition, job_name) AS is_here,
            coalesce(busy_s >= 1D, false) OR coalesce(seconds >= {TRUSTED_AFTER_S}, false)
              AS has_cost,
            count(*) OVER alike AS incarnations,
            least(1D, sum(seconds) OVER alike / {_PRESENT_S}) AS covered
          FROM wired WINDOW alike AS (
            PARTITION BY composition, job_name, source_topic, sink_topic)
        )
        SELECT * EXCEPT (last_at, newest_at), newest_at AS last_at
        FROM (
          SELECT *, {name_all(means)},
            max(last_at) OVER (PARTITION BY composition, job_name) AS newest_at,
            row_number() OVER (
              PARTITION BY composition, job_name
              ORDER BY is_here DESC, has_cost DESC, last_at DESC, attempt DESC, engine_job_id)
              AS place
          FROM located WINDOW alike AS (
            PARTITION BY composition, job_name, source_topic, sink_topic))
        WHERE place = 1
        """,
        rated=JOBS_RATED.check(rated, step),
        plans=PLANS_WIRED.check(plans, step),
    )


_PRESENT_S = (
    "((unix_micros(max(last_at) OVER alike) - unix_micros(min(first_at) OVER alike)) / 1e6D)"
)


def _mean_over_incarnations(rate: str) -> str:
    """An expression: the rate over the time since the job was first seen; over the measured time
    if that is nearly all of it."""
    measured_s = f"sum(CASE WHEN {rate} IS NOT NULL THEN seconds END) OVER alike"
    return f"""
        CASE
          WHEN covered >= {COVERED}D AND incarnations = 1 THEN {rate}
          WHEN covered >= {COVERED}D THEN sum({rate} * seconds) OVER alike / {measured_s}
          ELSE sum({rate} * seconds) OVER alike / {_PRESENT_S}
        END"""
