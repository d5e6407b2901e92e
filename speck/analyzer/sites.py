"""Sites: what they have, and what is used of it over the window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.memory import HEAPS, choose_state_factor, estimate_heap, measure_heaps
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
    | {name: kind for name, kind in HEAPS.columns.items() if name != "site"},
)

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

SITES_LOADED = Contract(
    "sites' loads",
    {**SITES_USED.columns, "load": "double"},  # reference core-seconds a second, of its jobs
)


def sum_polls(rows: DataFrame) -> DataFrame:
    """SITES rows -> SITES_POLLED, with the HEAPS of the same rows."""
    frame = contract_of(SITES).select(rows, "sum up polls of sites")
    order = Window.partitionBy("site").orderBy("at", "cpu_ms")
    clock = (F.unix_micros("at") - F.unix_micros(F.lag("at").over(order))) / 1e6
    is_first = F.coalesce(F.col("_clock") > 0, F.lit(True))  # a row may be in two files
    cpu_s = (F.col("cpu_ms") - F.lag("cpu_ms").over(order)) / 1000.0
    frame = frame.withColumns({"_cpu": cpu_s, "_clock": clock})
    is_good = (F.col("_cpu") >= 0) & (F.col("_clock") > 0)
    newest = ("tier", "cores", "pace", "slots_total", "slots_free", "uplink_mbps")
    polls = frame.groupBy("site").agg(
        *(_newest_of(name).alias(name) for name in newest),
        F.avg(F.when(is_first, F.col("host_cpu"))).alias("host_cpu"),
        (F.sum(F.when(is_good, F.col("_cpu"))) / F.sum(F.when(is_good, F.col("_clock")))).alias(
            "cpu"
        ),
        ((F.unix_micros(F.max("at")) - F.unix_micros(F.min("at"))) / 1e6).alias("seconds"),
        F.max("at").alias("last_at"),
    )
    polls = polls.join(measure_heaps(rows), "site", "left")
    return SITES_POLLED.select(polls, "sum up polls of sites")


def _newest_of(name: str) -> Column:
    """The newest known value."""
    return F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at")))


def add_use(polled: DataFrame, rated: DataFrame) -> DataFrame:
    """SITES_POLLED and JOBS_RATED of all incarnations -> SITES_USED."""
    step = "add sites' use"
    of_jobs = (
        JOBS_RATED.select(rated, step)
        .groupBy("site")
        .agg(F.sum("busy_s").alias("_busy_s"), F.sum("state_bytes_per_s").alias("_growth"))
    )
    frame = SITES_POLLED.select(polled, step).join(of_jobs, "site", "left")
    busy = F.when(F.col("seconds") > 0, F.col("_busy_s") / F.col("seconds"))
    frame = frame.withColumns({"busy": busy, "heap_per_state_byte": choose_state_factor()})
    return SITES_USED.select(frame.withColumn("heap_bytes", estimate_heap()), step)
