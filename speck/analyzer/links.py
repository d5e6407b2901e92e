"""Links: rates of their producers and readers, and the bytes that cross between sites.

A job's end of a link uses the WAN if its engine is at another site than the link's broker.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.features import JOBS, LAGS
from speck.metrics.dataset.schema import LINKS

ENDED_S = 30.0

_END = {
    "composition": "string",
    "broker_site": "string",
    "topic": "string",
    "role": "string",
    "client_id": "string",
    "job_name": "string",
    "engine_site": "string",
}

ENDS = Contract(
    "ends of links",
    _END
    | {
        "records_per_s": "double",
        "lag": "bigint",  # the newest
        "lag_per_s": "double",  # its growth: slope of a line through all polls
        "lag_fit": "double",  # 0 to 1: how well a line fits (r squared)
        "last_at": "timestamp",
    },
)

_SENT = (
    "struct<client_id:string,job_name:string,site:string,records_per_s:double,bytes_per_s:double"
)
LINKS_RATED = Contract(
    "links",
    {
        "composition": "string",
        "broker_site": "string",
        "topic": "string",
        "producers": f"array<{_SENT}>>",
        "readers": f"array<{_SENT},lag:bigint,lag_per_s:double,lag_fit:double>>",
        "wan_bytes_per_s": "double",
    },
)


def rate_ends(rows: DataFrame) -> DataFrame:
    """LINKS rows -> ENDS. A new epoch of a producer, or a falling number, means that counting
    restarted."""
    frame = contract_of(LINKS).select(rows, "rate links")
    keys = ("broker_site", "topic", "role", "client_id")
    order = Window.partitionBy(*keys).orderBy("at", "epoch", "messages")
    clock = (F.unix_micros("at") - F.unix_micros(F.lag("at").over(order))) / 1e6
    sent = F.col("messages") - F.lag("messages").over(order)
    same = F.col("epoch").eqNullSafe(F.lag("epoch").over(order))
    frame = frame.withColumns({"_clock": clock, "_sent": sent, "_same": same})
    is_good = F.col("_same") & (F.col("_sent") >= 0) & (F.col("_clock") > 0)
    at = F.unix_micros("at") / 1e6
    is_first = F.coalesce(F.col("_clock") > 0, F.lit(True))  # a row may be in two files
    lag = F.when(is_first, F.col("lag").cast("double"))
    rates = frame.groupBy(*keys).agg(
        F.max_by("composition", "at").alias("composition"),
        F.max_by("job_name", "at").alias("job_name"),
        F.max_by("engine_site", "at").alias("engine_site"),
        _divide(
            F.sum(F.when(is_good, F.col("_sent"))), F.sum(F.when(is_good, F.col("_clock")))
        ).alias("records_per_s"),
        F.max_by("lag", F.when(lag.isNotNull(), F.col("at"))).alias("lag"),
        F.regr_slope(lag, at).alias("lag_per_s"),
        F.regr_r2(lag, at).alias("lag_fit"),
        F.max("at").alias("last_at"),
    )
    # each poll of a broker reports all its ends: one that is missing no longer exists
    newest = F.max("last_at").over(Window.partitionBy("broker_site"))
    is_gone = F.unix_micros(newest) - F.unix_micros("last_at") > ENDED_S * 1e6
    return ENDS.select(rates.withColumn("_gone", is_gone).where("not _gone"), "rate links")


def _divide(amount: Column, seconds: Column) -> Column:
    return F.when(seconds > 0, amount / seconds)


def find_lags(ends: DataFrame) -> DataFrame:
    """ENDS -> LAGS: the lag of each reading job."""
    frame = ENDS.select(ends, "find lags").where("role = 'reader' and job_name is not null")
    frame = frame.groupBy("composition", "job_name").agg(F.max_by("lag", "last_at").alias("lag"))
    return LAGS.select(frame, "find lags")


def join_links(jobs: DataFrame, ends: DataFrame) -> DataFrame:
    """JOBS and ENDS -> LINKS_RATED.

    Includes ends that reported numbers and those that the jobs' plans name without numbers.
    """
    frame = JOBS.select(jobs, "join links").where("not ended")
    reports = ENDS.select(ends, "join links")
    keys = ["composition", "broker_site", "topic", "role", "job_name"]
    newest = F.row_number().over(
        Window.partitionBy(*keys, F.when(F.col("job_name").isNull(), F.col("client_id"))).orderBy(
            F.desc("last_at"), "client_id"
        )
    )
    reports = reports.withColumn("_rank", newest).where("_rank = 1")
    of_jobs = _select_end(frame, "reader", "source", "in").unionByName(
        _select_end(frame, "producer", "sink", "out")
    )
    numbers = ["client_id", "records_per_s", "lag", "lag_per_s", "lag_fit"]
    reports_of_jobs = reports.where("job_name is not null").withColumnRenamed(
        "engine_site", "_site"
    )
    joined = of_jobs.join(reports_of_jobs.select(*keys, "_site", *numbers), keys, "full")
    joined = joined.withColumn("engine_site", F.coalesce("engine_site", "_site")).unionByName(
        reports.where("job_name is null").select(*keys, "engine_site", *numbers),
        allowMissingColumns=True,
    )
    rate = F.coalesce("records_per_s", "job_rate")
    mean_bytes = F.avg("per_record").over(Window.partitionBy("composition", "broker_site", "topic"))
    joined = joined.withColumns(
        {"records_per_s": rate, "bytes_per_s": F.coalesce("job_bytes", rate * mean_bytes)}
    )
    return LINKS_RATED.select(_group_ends(joined), "join links")


def _select_end(jobs: DataFrame, role: str, end: str, way: str) -> DataFrame:
    return jobs.where(F.col(f"{end}_topic").isNotNull()).select(
        "composition",
        F.col(f"{end}_site").alias("broker_site"),
        F.col(f"{end}_topic").alias("topic"),
        F.lit(role).alias("role"),
        "job_name",
        F.col("site").alias("engine_site"),
        F.col(f"{way}_rate").alias("job_rate"),
        F.col(f"bytes_{way}_rate").alias("job_bytes"),
        F.col(f"bytes_{way}_per_record").alias("per_record"),
    )


def _group_ends(joined: DataFrame) -> DataFrame:
    producer_columns = [
        F.col("client_id"),
        F.col("job_name"),
        F.col("engine_site").alias("site"),
        F.col("records_per_s"),
        F.col("bytes_per_s"),
    ]
    reader_columns = [*producer_columns, F.col("lag"), F.col("lag_per_s"), F.col("lag_fit")]
    crosses = F.col("job_name").isNotNull() & (F.col("engine_site") != F.col("broker_site"))
    # If the bytes of a crossing end are unknown, so is the sum.
    is_complete = F.count_if(crosses & F.col("bytes_per_s").isNull()) == 0
    wan = F.coalesce(F.sum(F.when(crosses, F.col("bytes_per_s"))), F.lit(0.0))
    return joined.groupBy("composition", "broker_site", "topic").agg(
        F.sort_array(
            F.collect_list(F.when(F.col("role") == "producer", F.struct(*producer_columns)))
        ).alias("producers"),
        F.sort_array(
            F.collect_list(F.when(F.col("role") == "reader", F.struct(*reader_columns)))
        ).alias("readers"),
        F.when(is_complete, wan).alias("wan_bytes_per_s"),
    )
