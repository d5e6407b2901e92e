"""Sites: what they have, and what is used of it over the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.memory import (
    HEAP_BINS,
    bin_heaps,
    choose_state_factor,
    estimate_heap,
    measure_heap,
)
from speck.analyzer.unknowns import add, divide
from speck.metrics.dataset.schema import SITES
from speck.model.values import JsonObject

SITES_POLLED = Contract(
    "polls of sites",
    {
        "site": "string",
        "tier": "string",
        "cores": "double",
        "core_speed": "double",  # null: not calibrated
        "slots_total": "int",
        "slots_free": "int",
        "host_cpu": "double",  # mean share of the machine
        "cpu": "double",  # CPU cores that the engine's processes used
        "seconds": "double",  # from the first poll to the last
        "uplink_mbps": "double",
        "last_at": "timestamp",  # the newest poll
        "bins": HEAP_BINS,
    },
)

NEWEST = ("tier", "cores", "core_speed", "slots_total", "slots_free", "uplink_mbps")
"""The columns of which the newest known value counts."""

SITE_FIELDS = (
    "site",
    *("tier", "cores", "core_speed", "slots_total", "slots_free", "host_cpu", "cpu"),
    "busy",  # busy core-seconds per second of all tasks, by wall time
    "uplink_mbps",
    "heap_bytes",  # used at the end of the window, without garbage
    "heap_max_bytes",
    "heap_bytes_per_subtask",  # None: the samples do not show it
    "heap_per_state_byte",
    "last_at",  # the newest poll
)


def sum_polls(rows: DataFrame) -> DataFrame:
    """SITES rows -> SITES_POLLED."""
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
        LEFT JOIN ({bin_heaps("{rows}", "site")}) USING (site)
        """,
        rows=contract_of(SITES).check(rows, step),
    )


def _newest_of(name: str) -> str:
    """The newest known value."""
    return f"max_by({name}, CASE WHEN {name} IS NOT NULL THEN at END)"


def add_use(polled: Iterable[JsonObject], rated: Sequence[JsonObject]) -> list[JsonObject]:
    """Rows of SITES_POLLED and all incarnations (`rates.rate_jobs`) -> what is used of each site:
    SITE_FIELDS."""
    return [
        _add_use(site, [job for job in rated if job["site"] == site["site"]]) for site in polled
    ]


def _add_use(site: JsonObject, jobs: Sequence[JsonObject]) -> JsonObject:
    heap = measure_heap(site["bins"])
    growth = add(job["state_bytes_per_s"] for job in jobs)
    factor = choose_state_factor(heap, growth)
    used = {
        **site,
        **heap,
        "busy": divide(add(job["busy_s"] for job in jobs), site["seconds"]),
        "heap_per_state_byte": factor,
        "heap_bytes": estimate_heap(heap, growth, factor, site["last_at"]),
    }
    return {name: used[name] for name in SITE_FIELDS}
