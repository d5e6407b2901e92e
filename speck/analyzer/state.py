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
from speck.metrics.dataset.schema import PLANS

CONNECTORS_BYTES = 1_100_000
"""Maximum size of a stateless job's checkpoints: the sink keeps up to 1 MB of messages that it may
have to send again. Measured after two minutes of a few 4 kB messages per second: 66 to 368 kB, and
growing."""

_ENDS = ("source_site", "source_topic", "sink_site", "sink_topic")

NEWEST_PLANS = Contract("newest plans", contract_of(PLANS).columns)

PLANS_WIRED = Contract(
    "wires of plans",
    {
        "engine_job_id": "string",
        "composition": "string",
        "job_name": "string",
        "at": "timestamp",  # the newest row
        "keyed": "boolean",  # null: unknown
        "declared": "boolean",  # null: not declared
        "pinned": "boolean",
        "source_site": "string",
        "source_topic": "string",
        "sink_site": "string",
        "sink_topic": "string",
        "source_is_input": "boolean",  # declared: outsiders feed the topic that it reads
    },
)


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


def wire_plans(plans: DataFrame) -> DataFrame:
    """NEWEST_PLANS -> PLANS_WIRED: a row for each incarnation."""
    step = "read plans"
    return PLANS_WIRED.query(
        step,
        f"""
        SELECT engine_job_id,
          max_by(composition, at) AS composition,
          max_by(job_name, at) AS job_name,
          max(at) AS at,
          max(array_contains(ship_strategies, 'HASH')) AS keyed,
          max(stateful) AS declared,
          coalesce(max(pinned), false) AS pinned,
          {", ".join(f"max_by({name}, at) AS {name}" for name in _ENDS)},
          coalesce(max_by(source_is_input, at), false) AS source_is_input
        FROM {{plans}} GROUP BY engine_job_id
        """,
        plans=NEWEST_PLANS.check(plans, step),
    )


_IS_SMALL = f"checkpoint_bytes <= {CONNECTORS_BYTES}"

IS_STATEFUL = f"""
    coalesce(declared, CASE WHEN keyed THEN true WHEN NOT keyed AND {_IS_SMALL} THEN false END)"""
"""By the columns of PLANS_WIRED and `checkpoint_bytes`; null: unknown."""

STATE_WHY = f"""
    CASE
      WHEN declared IS NOT NULL THEN 'declared'
      WHEN keyed THEN 'its plan has a keyed exchange'
      WHEN keyed IS NULL AND pinned IS NULL THEN null
      WHEN {_IS_SMALL} THEN
        'no keyed exchange, and its checkpoints are no larger than connector state'
      WHEN checkpoint_bytes IS NULL THEN 'no keyed exchange, and no checkpoint yet'
      ELSE 'no keyed exchange, but large checkpoints'
    END"""
"""The evidence; null for an incarnation without a plan."""
