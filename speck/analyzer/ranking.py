"""Ranks the jobs that should run at edges.

The score is the number of WAN bytes that a job saves at its edge for each core-second it uses
there: `(bytes in - bytes out) / (reference core-seconds / core speed of the edge)`, all per second.
Bytes in are those produced at that edge, minus those produced at no edge. Scores within 1 % of the
next one are ties, and among ties stateless jobs come first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract
from speck.analyzer.data_origins import DataOrigins
from speck.analyzer.features import JOBS
from speck.analyzer.sites import SITES_LOADED, SITES_USED

TIE = 0.99
WHOLE = 0.995
FULL = 0.7
"""Maximum share of a site's capacity that jobs may use."""

ORIGINS = Contract(
    "origins",
    {
        "composition": "string",
        "job_name": "string",
        "edge": "string",
        "share": "double",  # share of the job's input bytes that is produced at that edge
        "cloud_share": "double",  # ... that is produced at no edge; both null: unknown
    },
)

RANKING = Contract(
    "ranking",
    {
        "rank": "int",
        "job_name": "string",
        "composition": "string",
        "site": "string",
        "edge": "string",
        "wan_bytes_saved_per_s": "double",
        "edge_core_s_per_s": "double",
        "score": "double",
        "stateful": "boolean",
        "confidence": "string",
        "reasons": "array<string>",
        "against": "array<string>",
    },
)


def find_origins(jobs: DataFrame, sites: DataFrame) -> DataFrame:
    """JOBS and SITES_USED -> ORIGINS: the edge whose data a job processes, if any.

    That is the site of the broker it reads from. If that is no edge, it is the edge that sends most
    bytes to the upstream jobs. The graph is small, so it is walked in Python.
    """
    frame = JOBS.select(jobs, "find the edges of jobs")
    tiers = SITES_USED.select(sites, "find the edges of jobs").select("site", "tier").collect()
    columns = ("composition", "job_name", "source_site", "source_topic", "sink_site", "sink_topic")
    rows = frame.select(*columns, "bytes_out_rate").collect()
    origins = DataOrigins({row.site for row in tiers if row.tier == "edge"})
    for row in rows:
        source, sink = (row.source_site, row.source_topic), (row.sink_site, row.sink_topic)
        if None not in (*source, *sink):
            origins.add(source, sink, row.bytes_out_rate)
    chosen = []
    for row in rows:
        shares, are_known = origins.origins_of((row.source_site, row.source_topic))
        edges = sorted(edge for edge in shares if edge is not None)
        edge = max(edges, key=lambda name: shares[name], default=None)
        known_shares = (shares[edge], shares.get(None, 0.0)) if are_known and edge else (None, None)
        chosen.append((row.composition, row.job_name, edge, *known_shares))
    return ORIGINS.select(frame.sparkSession.createDataFrame(chosen, ORIGINS.ddl), "find edges")


def rank_jobs(jobs: DataFrame, sites: DataFrame, origins: DataFrame) -> DataFrame:
    """JOBS, SITES_LOADED and ORIGINS -> RANKING: one row per job, those without a score last."""
    step = "rank jobs"
    frame = JOBS.select(jobs, step)
    work = F.col("reference_core_s_per_record") * F.col("in_rate")
    frame = frame.withColumn("_work", work)
    edges = F.broadcast(
        SITES_LOADED.select(sites, step).select(
            F.col("site").alias("edge"),
            F.coalesce("pace", F.lit(1.0)).alias("_pace"),
            F.col("pace").isNull().alias("_uncalibrated"),
            F.col("cores").alias("_cores"),
            F.col("slots_free").alias("_free"),
            F.col("load").alias("_load"),
        )
    )
    frame = frame.join(ORIGINS.select(origins, step), ["composition", "job_name"], "left").join(
        edges, "edge", "left"
    )
    frame = frame.withColumn("_there", F.coalesce(F.col("site") == F.col("edge"), F.lit(False)))
    frame = frame.withColumns(
        {
            "wan_bytes_saved_per_s": F.when(F.col("edge").isNotNull(), _compute_saving()),
            "edge_core_s_per_s": F.col("_work") / F.col("_pace"),
        }
    )
    saving = F.col("wan_bytes_saved_per_s") / F.col("edge_core_s_per_s")
    frame = frame.withColumn("score", F.when(F.col("edge_core_s_per_s") > 0, saving))
    frame = frame.withColumns(
        {
            "reasons": F.array_compact(F.array(*_list_reasons())),
            "against": F.array_compact(F.array(*_list_objections())),
            "confidence": _lower_confidence(),
        }
    )
    return RANKING.select(_add_rank(frame), step)


def _compute_saving() -> Column:
    """Bytes that cross with the job in the cloud, minus those that cross with it at its edge.

    At the edge its output crosses, and its input from the cloud. Input from other edges crosses
    either way.
    """
    input_saved = F.col("bytes_in_rate") * (F.col("share") - F.col("cloud_share"))
    return input_saved - F.col("bytes_out_rate")


def _add_rank(frame: DataFrame) -> DataFrame:
    by_score = Window.orderBy(F.desc_nulls_last("score"), "composition", "job_name")
    above = F.lag("score").over(by_score)
    # Of two negative scores the higher one is closer to 0.
    apart = F.when(above > 0, F.col("score") < TIE * above).otherwise(F.col("score") < above / TIE)
    begins = F.coalesce(apart, F.col("score").isNull() & above.isNotNull(), F.lit(False))
    frame = frame.withColumn("_begins", begins.cast("int"))
    frame = frame.withColumn("_tie", F.sum("_begins").over(by_score))
    stateless_first = F.coalesce(F.col("stateful").cast("int") * 2, F.lit(1))
    order = Window.orderBy(
        "_tie", stateless_first, F.desc_nulls_last("score"), "composition", "job_name"
    )
    return frame.withColumn("rank", F.row_number().over(order))


def _list_reasons() -> list[Column]:
    saving, score = F.col("wan_bytes_saved_per_s"), F.col("score")
    return [
        F.when(F.col("_there"), F.format_string("runs at %s, where its data is produced", "edge")),
        F.when(
            (saving > 0) & F.col("edge").isNotNull(),
            F.format_string(
                "sends %.0f B/s of the %.0f B/s that it receives from %s",
                "bytes_out_rate",
                F.col("bytes_in_rate") * F.col("share"),
                "edge",
            ),
        ),
        F.when(score.isNotNull(), F.format_string("saves %.0f WAN bytes per core-second", score)),
        F.when(F.col("stateful") == F.lit(False), F.concat(F.lit("stateless: "), "state_why")),
    ]


def _list_objections() -> list[Column]:
    there = F.col("_there")
    capacity = FULL * F.col("_cores") * F.col("_pace")
    load = F.col("_load") + F.when(there, 0.0).otherwise(F.col("_work"))
    return [
        F.when(
            F.col("ended") & (F.col("evidence") == "sufficient"),
            "is no longer running",
        ),
        F.when(
            F.col("evidence") != "sufficient",
            F.concat(F.lit("insufficient: "), F.array_join("why", "; ")),
        ),
        F.when(F.col("edge").isNull(), "its input does not come from an edge"),
        F.when(
            F.col("wan_bytes_saved_per_s").isNull() & F.col("edge").isNotNull(),
            F.when(F.col("share").isNotNull(), "its bytes are not reported").otherwise(
                "the shares of sites in its input are unknown"
            ),
        ),
        F.when(
            F.col("share") < WHOLE,
            F.format_string(
                "only %.0f %% of its input comes from %s", F.col("share") * 100, "edge"
            ),
        ),
        F.when(
            F.col("wan_bytes_saved_per_s") <= 0,
            F.when(
                F.col("share") < WHOLE,
                F.format_string(
                    "%.0f B/s more would cross between sites", F.abs("wan_bytes_saved_per_s")
                ),
            ).otherwise(
                F.format_string(
                    "it sends %.0f B/s more than it receives", F.abs("wan_bytes_saved_per_s")
                )
            ),
        ),
        F.when(F.col("pinned") & ~there, "pinned"),
        F.when(
            ~there & (F.col("_free") < F.col("subtasks")),
            F.format_string("%s has %d free slots", "edge", "_free"),
        ),
        F.when(
            load > capacity,
            F.format_string(
                "over the capacity of %s: %.2f of %.2f reference core-seconds per second",
                "edge",
                load,
                capacity,
            ),
        ),
        F.when(
            ~there & F.col("stateful"),
            F.format_string(
                "stateful: a move transfers %d bytes", F.coalesce("state_bytes", F.lit(0))
            ),
        ),
        F.when(~there & F.col("stateful").isNull(), "it is unknown whether it keeps state"),
    ]


def _lower_confidence() -> Column:
    lowered = F.when(F.col("confidence") == "high", "medium").otherwise("low")
    is_uncalibrated = F.coalesce(F.col("_uncalibrated"), F.lit(True))
    return (
        F.when(F.col("score").isNull(), "low")
        .when(is_uncalibrated, lowered)
        .otherwise(F.col("confidence"))
    )
