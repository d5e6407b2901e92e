"""Whether a job keeps state, and how much.

The user may declare it. Otherwise it follows from the engine's plan: a keyed exchange (`HASH`)
means keyed state. The size of checkpoints is weak evidence: a stateless job's checkpoints contain
the state of its connectors (the source's numbers, and the sink's recent messages, up to
`CONNECTORS_BYTES`). So a job without a keyed exchange counts as stateless while its checkpoints are
no larger than that, and as unknown (null) beyond.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.rates import JOBS_RATED
from speck.metrics.dataset.schema import PLANS

CONNECTORS_BYTES = 1_100_000
"""Maximum size of a stateless job's checkpoints: the sink keeps up to 1 MB of messages that it may
have to send again. Measured after two minutes of a few 4 kB messages per second: 66 to 368 kB, and
growing."""

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
    frame = contract_of(PLANS).select(plans, "read plans")
    order = Window.partitionBy("engine_job_id", "vertex").orderBy(F.desc("at"))
    frame = frame.withColumn("_rank", F.row_number().over(order)).where("_rank = 1")
    return NEWEST_PLANS.select(frame, "read plans")


def wire_jobs(plans: DataFrame, rated: DataFrame) -> DataFrame:
    """NEWEST_PLANS and JOBS_RATED -> JOBS_WIRED: a row for each incarnation that has a plan."""
    frame = NEWEST_PLANS.select(plans, "read plans")
    ends = ("source_site", "source_topic", "sink_site", "sink_topic")
    frame = frame.groupBy("engine_job_id").agg(
        F.max(F.array_contains("ship_strategies", "HASH")).alias("_keyed"),
        F.max("stateful").alias("_declared"),
        F.coalesce(F.max("pinned"), F.lit(False)).alias("pinned"),
        *(F.max_by(name, "at").alias(name) for name in ends),
    )
    sizes = JOBS_RATED.select(rated, "read plans").select("engine_job_id", "checkpoint_bytes")
    frame = frame.join(sizes, "engine_job_id", "left")
    is_small = F.col("checkpoint_bytes") <= CONNECTORS_BYTES
    stateful = F.when(F.col("_keyed"), F.lit(True)).when(~F.col("_keyed") & is_small, F.lit(False))
    why = (
        F.when(F.col("_declared").isNotNull(), "declared")
        .when(F.col("_keyed"), "its plan has a keyed exchange")
        .when(is_small, "no keyed exchange, and its checkpoints are no larger than connector state")
        .when(F.col("checkpoint_bytes").isNull(), "no keyed exchange, and no checkpoint yet")
        .otherwise("no keyed exchange, but large checkpoints")
    )
    frame = frame.withColumns({"stateful": F.coalesce("_declared", stateful), "state_why": why})
    return JOBS_WIRED.select(frame, "read plans")
