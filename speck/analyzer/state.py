"""Whether a job keeps state, and how much.

The user may declare it. Otherwise it follows from the engine's plan: a keyed exchange (`HASH`)
means keyed state. The size of checkpoints is weak evidence: a stateless job's checkpoints contain
the state of its connectors (the source's numbers, and the sink's recent messages, up to
`CONNECTORS_BYTES`). So a job without a keyed exchange counts as stateless while its checkpoints are
no larger than that, and as unknown (null) beyond.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.rates import JOBS_RATED
from speck.metrics.dataset.schema import PLANS

CONNECTORS_BYTES = 1_100_000
"""Maximum size of a stateless job's checkpoints: the sink keeps up to 1 MB of messages that it may
have to send again. Measured after two minutes of a few 4 kB messages per second: 66 to 368 kB, and
growing."""

_ENDS = ("source_site", "source_topic", "sink_site", "sink_topic")

JOBS_WIRED = Contract(
    "wired jobs",
    {
        "engine_job_id": "string",
        "stateful": "boolean",  # null: unknown
        "state_why": "string",
        "pinned": "boolean",
        "source_site": "string",
        "source_topic": "string",
        "sink_site": "string",
        "sink_topic": "string",
    },
)


NEWEST_PLANS = Contract("newest plans", contract_of(PLANS).columns)


def choose_newest_plans(plans: DataFrame) -> DataFrame:
    """PLANS rows -> the newest of each task."""
    step = "read plans"
    return NEWEST_PLANS.query(
        step,
        """
        SELECT * FROM (
          SELECT *,
            row_number() OVER (PARTITION BY engine_job_id, vertex ORDER BY at DESC) AS place
          FROM {plans})
        WHERE place = 1
        """,
        plans=contract_of(PLANS).check(plans, step),
    )


def wire_jobs(plans: DataFrame, rated: DataFrame) -> DataFrame:
    """NEWEST_PLANS and JOBS_RATED -> JOBS_WIRED: a row for each incarnation that has a plan."""
    step = "read plans"
    is_small = f"checkpoint_bytes <= {CONNECTORS_BYTES}"
    return JOBS_WIRED.query(
        step,
        f"""
        WITH planned AS (
          SELECT engine_job_id,
            max(array_contains(ship_strategies, 'HASH')) AS keyed,
            max(stateful) AS declared,
            coalesce(max(pinned), false) AS pinned,
            {", ".join(f"max_by({name}, at) AS {name}" for name in _ENDS)}
          FROM {{plans}} GROUP BY engine_job_id
        )
        SELECT planned.*,
          coalesce(
            declared, CASE WHEN keyed THEN true WHEN NOT keyed AND {is_small} THEN false END
          ) AS stateful,
          CASE
            WHEN declared IS NOT NULL THEN 'declared'
            WHEN keyed THEN 'its plan has a keyed exchange'
            WHEN {is_small}
              THEN 'no keyed exchange, and its checkpoints are no larger than connector state'
            WHEN checkpoint_bytes IS NULL THEN 'no keyed exchange, and no checkpoint yet'
            ELSE 'no keyed exchange, but large checkpoints'
          END AS state_why
        FROM planned
        LEFT JOIN (SELECT engine_job_id, checkpoint_bytes FROM {{rated}}) USING (engine_job_id)
        """,
        plans=NEWEST_PLANS.check(plans, step),
        rated=JOBS_RATED.check(rated, step),
    )
