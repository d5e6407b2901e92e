"""Sites: what they have, and what is used of it over the window."""

from __future__ import annotations

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.memory import (
    CHOOSE_STATE_FACTOR,
    ESTIMATE_HEAP,
    HEAPS,
    bin_heaps,
    measure_heaps,
)
from speck.analyzer.rates import JOBS_RATED
from speck.metrics.dataset.schema import SITES

SITES_POLLED = Contract(
    "polls of sites",
    {
        "site": "string",
        "tier": "string",
        "cores": "double",
        "pace": "double",  # null: not calibrated
        "slots_total": "int",
        "slots_free": "int",
        "host_cpu": "double",  # mean share of the machine
        "cpu": "double",  # CPU cores that the engine's processes used
        "seconds": "double",  # from the first poll to the last
        "uplink_mbps": "double",
        "last_at": "timestamp",  # the newest poll
    }
    | HEAPS,
)

NEWEST = ("tier", "cores", "pace", "slots_total", "slots_free", "uplink_mbps")
"""The columns of which the newest known value counts."""

SITES_USED = Contract(
    "sites used",
    {
        "site": "string",
        "tier": "string",
        "cores": "double",
        "pace": "double",  # null: not calibrated
        "slots_total": "int",
        "slots_free": "int",
        "host_cpu": "double",  # mean share of the machine
        "cpu": "double",  # CPU cores that the engine's processes used
        "busy": "double",  # busy core-seconds per second of all tasks, by wall time
        "uplink_mbps": "double",
        "heap_bytes": "double",  # used at the end of the window, without garbage
        "heap_max_bytes": "double",
        "heap_bytes_per_subtask": "double",  # null: the samples do not show it
        "heap_per_state_byte": "double",
        "last_at": "timestamp",  # the newest poll
    },
)


def sum_polls(rows: DataFrame) -> DataFrame:
    """SITES rows -> SITES_POLLED, with the HEAPS of the same rows."""
    step = "sum up polls of sites"
    return SITES_POLLED.query(
        step,
        f"""
        WITH paired AS (
          SELECT *,
            (cpu_ms - lag(cpu_ms) OVER polls) / 1000D AS cpu_s,
            (unix_micros(at) - unix_micros(lag(at) OVER polls)) / 1e6D AS clock_s
          FROM {{rows}} WINDOW polls AS (PARTITION BY site ORDER BY at, cpu_ms)
        ),
        polled AS (
          SELECT site, {", ".join(f"{_newest_of(name)} AS {name}" for name in NEWEST)},
            -- a row may be in two files
            avg(CASE WHEN coalesce(clock_s > 0, true) THEN host_cpu END) AS host_cpu,
            sum(CASE WHEN cpu_s >= 0 AND clock_s > 0 THEN cpu_s END)
              / sum(CASE WHEN cpu_s >= 0 AND clock_s > 0 THEN clock_s END) AS cpu,
            (unix_micros(max(at)) - unix_micros(min(at))) / 1e6D AS seconds,
            max(at) AS last_at
          FROM paired GROUP BY site
        )
        SELECT * FROM polled
        LEFT JOIN ({measure_heaps(f"({bin_heaps('{rows}', 'site')})")}) USING (site)
        """,
        rows=contract_of(SITES).check(rows, step),
    )


def _newest_of(name: str) -> str:
    """The newest known value."""
    return f"max_by({name}, CASE WHEN {name} IS NOT NULL THEN at END)"


def add_use(polled: DataFrame, rated: DataFrame) -> DataFrame:
    """SITES_POLLED and JOBS_RATED of all incarnations -> SITES_USED."""
    step = "add sites' use"
    return SITES_USED.query(
        step,
        f"""
        WITH used AS (
          SELECT polled.*, growth, CASE WHEN seconds > 0 THEN busy_s / seconds END AS busy
          FROM {{polled}} AS polled
          LEFT JOIN (
            SELECT site, sum(busy_s) AS busy_s, sum(state_bytes_per_s) AS growth
            FROM {{rated}} GROUP BY site
          ) USING (site)
        ),
        factored AS (SELECT *, {CHOOSE_STATE_FACTOR} AS heap_per_state_byte FROM used)
        SELECT *, {ESTIMATE_HEAP} AS heap_bytes FROM factored
        """,
        polled=SITES_POLLED.check(polled, step),
        rated=JOBS_RATED.check(rated, step),
    )
