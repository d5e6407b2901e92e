"""What sites have and use over the window."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, table_contract
from speck.analyzer.rates import JOBS_RATED
from speck.dataset.schema import SITES

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
        "busy": "double",  # core-seconds in a second that all tasks were busy, by wall time
        "uplink_mbps": "double",
    },
)


def sites(rows: DataFrame, rated: DataFrame) -> DataFrame:
    """SITES rows and JOBS_RATED of all incarnations -> SITES_USED."""
    looks = table_contract(SITES).of(rows, "look at sites")
    order = Window.partitionBy("site").orderBy("at", "cpu_ms")
    before = F.lag("cpu_ms").over(order)
    clock = (F.unix_micros("at") - F.unix_micros(F.lag("at").over(order))) / 1e6
    looks = looks.withColumn("_cpu", (F.col("cpu_ms") - before) / 1000.0)
    looks = looks.withColumn("_clock", F.when((F.col("_cpu") >= 0) & (clock > 0), clock))
    used = F.sum(F.when(F.col("_clock").isNotNull(), F.col("_cpu"))) / F.sum("_clock")
    newest = ("tier", "cores", "pace", "slots_total", "slots_free", "uplink_mbps")
    seconds = (F.unix_micros(F.max("at")) - F.unix_micros(F.min("at"))) / 1e6
    found = looks.groupBy("site").agg(
        *(
            F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at"))).alias(name)
            for name in newest
        ),
        F.avg("host_cpu").alias("host_cpu"),
        used.alias("cpu"),
        seconds.alias("_seconds"),
    )
    worked = (
        JOBS_RATED.of(rated, "look at sites").groupBy("site").agg(F.sum("busy_s").alias("_busy_s"))
    )
    found = found.join(worked, "site", "left")
    busy = F.when(F.col("_seconds") > 0, F.col("_busy_s") / F.col("_seconds"))
    return SITES_USED.of(found.withColumn("busy", busy), "look at sites")
