"""Ranks the jobs that should run at edges.

The score is the number of WAN bytes that a job saves at its edge for each core-second it uses
there: `(bytes in - bytes out) / (reference core-seconds / core speed of the edge)`, all per second.
Bytes in are those produced at that edge, minus those produced at no edge. Scores within 1 % of the
next one are ties, and among ties stateless jobs come first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from speck.analyzer.contracts import Contract
from speck.analyzer.data_origins import DataOrigins
from speck.analyzer.features import JOBS, list_of
from speck.analyzer.sites import SITES_LOADED, SITES_USED
from speck.placement.ranking import TIE, WHOLE

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
    step = "find the edges of jobs"
    frame = JOBS.check(jobs, step)
    tiers = SITES_USED.check(sites, step).select("site", "tier").collect()
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
    return _make_frame(frame.sparkSession, chosen)


def _make_frame(spark: SparkSession, rows: Sequence[tuple[object, ...]]) -> DataFrame:
    """ORIGINS from rows, as an expression: `createDataFrame` would start Python workers."""
    kinds = ",".join(f"{name}:{kind}" for name, kind in ORIGINS.columns.items())
    values = [dict(zip(ORIGINS.columns, row, strict=True)) for row in rows]
    text = f"SELECT inline(from_json(:rows, 'array<struct<{kinds}>>'))"
    return spark.sql(text, args={"rows": json.dumps(values)}).coalesce(1)


def rank_jobs(jobs: DataFrame, sites: DataFrame, origins: DataFrame) -> DataFrame:
    """JOBS, SITES_LOADED and ORIGINS -> RANKING: one row per job, those without a score last.

    A job in the cloud sends its input across, one at its edge its output and its input from the
    cloud; input from other edges crosses either way.
    """
    step = "rank jobs"
    order = "score DESC NULLS LAST, composition, job_name"
    return RANKING.query(
        step,
        f"""
        WITH joined AS (
          SELECT jobs.*, edge, share, cloud_share,
            reference_core_s_per_record * in_rate AS work,
            coalesce(site = edge, false) AS is_there,
            coalesce(edge_pace, 1D) AS edge_speed,
            coalesce(edge_pace IS NULL, true) AS is_uncalibrated,
            edge_cores, edge_slots, edge_load
          FROM {{jobs}} AS jobs
          LEFT JOIN {{origins}} USING (composition, job_name)
          LEFT JOIN (
            SELECT site AS edge, pace AS edge_pace, cores AS edge_cores,
              slots_free AS edge_slots, load AS edge_load
            FROM {{sites}}
          ) USING (edge)
        ),
        saved AS (
          SELECT *,
            CASE WHEN edge IS NOT NULL
              THEN bytes_in_rate * (share - cloud_share) - bytes_out_rate END
              AS wan_bytes_saved_per_s,
            work / edge_speed AS edge_core_s_per_s
          FROM joined
        ),
        scored AS (
          SELECT *,
            CASE WHEN edge_core_s_per_s > 0 THEN wan_bytes_saved_per_s / edge_core_s_per_s END
              AS score
          FROM saved
        ),
        compared AS (SELECT *, lag(score) OVER (ORDER BY {order}) AS above FROM scored),
        -- of two negative scores the higher one is closer to 0
        tied AS (
          SELECT *,
            sum(cast(coalesce(
              CASE WHEN above > 0 THEN score < {TIE} * above ELSE score < above / {TIE} END,
              score IS NULL AND above IS NOT NULL) AS int)) OVER (ORDER BY {order}) AS tie
          FROM compared
        )
        SELECT * EXCEPT (confidence),
          row_number() OVER (
            ORDER BY tie, coalesce(cast(stateful AS int) * 2, 1), {order}) AS rank,
          {list_of(_REASONS)} AS reasons,
          {list_of(_OBJECTIONS)} AS against,
          CASE
            WHEN score IS NULL THEN 'low'
            WHEN NOT is_uncalibrated THEN confidence
            WHEN confidence = 'high' THEN 'medium'
            ELSE 'low'
          END AS confidence
        FROM tied
        """,
        jobs=JOBS.check(jobs, step),
        sites=SITES_LOADED.check(sites, step),
        origins=ORIGINS.check(origins, step),
    )


_REASONS = {
    "is_there": "format_string('runs at %s, where its data is produced', edge)",
    "wan_bytes_saved_per_s > 0 AND edge IS NOT NULL": (
        "format_string('sends %.0f B/s of the %.0f B/s that it receives from %s',"
        " bytes_out_rate, bytes_in_rate * share, edge)"
    ),
    "score IS NOT NULL": "format_string('saves %.0f WAN bytes per core-second', score)",
    "stateful = false": "concat('stateless: ', state_why)",
}

_CAPACITY = f"{FULL}D * edge_cores * edge_speed"
_LOAD = "(edge_load + CASE WHEN is_there THEN 0D ELSE work END)"

_OBJECTIONS = {
    "ended AND evidence = 'sufficient'": "'is no longer running'",
    "evidence <> 'sufficient'": "concat('insufficient: ', array_join(why, '; '))",
    "edge IS NULL": "'its input does not come from an edge'",
    "wan_bytes_saved_per_s IS NULL AND edge IS NOT NULL": """
        CASE WHEN share IS NOT NULL THEN 'its bytes are not reported'
          ELSE 'the shares of sites in its input are unknown' END""",
    f"share < {WHOLE}": (
        "format_string('only %.0f %% of its input comes from %s', share * 100, edge)"
    ),
    "wan_bytes_saved_per_s <= 0": f"""
        CASE WHEN share < {WHOLE} THEN
          format_string('%.0f B/s more would cross between sites', abs(wan_bytes_saved_per_s))
        ELSE
          format_string('it sends %.0f B/s more than it receives', abs(wan_bytes_saved_per_s))
        END""",
    "pinned AND NOT is_there": "'pinned'",
    "NOT is_there AND edge_slots < subtasks": (
        "format_string('%s has %d free slots', edge, edge_slots)"
    ),
    f"{_LOAD} > {_CAPACITY}": f"""
        format_string(
          'over the capacity of %s: %.2f of %.2f reference core-seconds per second',
          edge, {_LOAD}, {_CAPACITY})""",
    "NOT is_there AND stateful": (
        "format_string('stateful: a move transfers %d bytes', coalesce(state_bytes, 0L))"
    ),
    "NOT is_there AND stateful IS NULL": "'it is unknown whether it keeps state'",
}
