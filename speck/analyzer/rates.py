"""Computes rates over the window for each subtask, task, incarnation and job.

A rate is the difference of a counter over the time it took. The time of a subtask is the sum of the
three times of its thread (`reported_s`). If that differs from the time between polls by more than a
half, or one of the three is missing, the time between polls counts. Rates of subtasks add up.

`speck.metrics.rates` does the same for the last two samples, in the service's memory and without
Spark. The code is not shared since this runs as Spark expressions; the counters are the same, and
`tests/services/analyzer/test_rates_agree.py` compares the two.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.clean import PAIRS
from speck.analyzer.contracts import Contract
from speck.analyzer.lines import MIN_POINTS, fit_rising_line
from speck.analyzer.reading import Span

SLICES = 10
"""Number of parts of the window that are compared to see how steady a job's cost is."""
GAP = 3.0
"""A pair this many usual intervals long is a gap."""
WHOLE = 0.99
"""CPU time must be reported for this share of the time with busy time (1, except for rounding)."""
MIN_SLICE_BUSY_S = 0.1
"""Minimum busy time for which a slice is evidence of a job's cost."""

TRUE_OUTPUT = "trueOutputProcessingRate"
"""flink-placement's name for records sent per second of useful time."""
MIN_BUSY_S = 1.0
"""Minimum busy time that is evidence of a rate per second of useful time, or of a cost."""
SUBTASK_RATES = f"array<struct<vertex:string,subtask:int,{TRUE_OUTPUT}:double>>"

_OF_JOB = {
    "composition": "string",
    "job_name": "string",
    "site": "string",
    "engine_job_id": "string",
    "attempt": "int",
}
_OF_TASK = {
    "vertex": "string",
    "subtasks": "int",
    "is_source": "boolean",
    "is_sink": "boolean",
}
_SUMMED = (
    "clock_s",  # of good pairs
    "agreed_clock_s",  # of good pairs with all three times
    "reported_s",
    "busy_clock_s",  # of good pairs with a busy time
    "busy_s",
    "cpu_clock_s",
    "cpu_s",
    "idle_s",
    "back_clock_s",
    "back_pressured_s",
    "in_clock_s",
    "records_in",
    "out_clock_s",
    "records_out",
    "bytes_in_clock_s",
    "bytes_in",
    "bytes_out_clock_s",
    "bytes_out",
    "contended_s",
)
_COUNTED = ("rows", "pairs", "duplicates", "resets", "nan", "contended")

SLICED = Contract(
    "slices",
    _OF_JOB
    | _OF_TASK
    | {"subtask": "int", "slice": "int", "stride": "int"}
    | dict.fromkeys(_COUNTED, "bigint")
    | dict.fromkeys(_SUMMED, "double")
    | {
        "first_at": "timestamp",
        "last_at": "timestamp",
        "restarts_least": "int",
        "restarts_most": "int",
        "checkpoint_bytes": "bigint",
        "checkpoint_ms": "bigint",
    },
)
"""Sums of pairs by subtask, slice of the window, and length of the pair (`stride`: quarter
octaves of seconds), so that the usual interval is known without another pass over the pairs."""

TASKS_RATED = Contract(
    "task rates",
    _OF_JOB
    | _OF_TASK
    | dict.fromkeys(_COUNTED, "bigint")
    | {
        "gaps": "bigint",
        "most_pairs": "bigint",  # of one subtask
        "seconds": "double",  # covered by good pairs, of the subtask that has most
        "busy_s": "double",  # observed busy seconds, of all subtasks
        "busy": "double",  # busy seconds in a second, of all subtasks
        "cpu": "double",  # CPU seconds in a second, of all subtasks
        "back_pressured": "double",  # share of time, of the subtask that has most
        "in_rate": "double",  # records in a second, of all subtasks
        "out_rate": "double",
        "bytes_in_rate": "double",
        "bytes_out_rate": "double",
        "rates": SUBTASK_RATES,
        "contended_s": "double",
        "clock_s": "double",
        "first_at": "timestamp",
        "last_at": "timestamp",
        "restarts": "int",
        "checkpoint_bytes": "bigint",
        "checkpoint_ms": "bigint",
    },
)

TRUSTED_AFTER_S = 60.0
"""After this long a new incarnation represents the job even without enough evidence of its cost."""

JOBS_RATED = Contract(
    "job rates",
    _OF_JOB
    | dict.fromkeys(_COUNTED, "bigint")
    | {
        "gaps": "bigint",
        "most_pairs": "bigint",  # of one subtask
        "seconds": "double",
        "subtasks": "int",  # of the task that has most
        "busy_s": "double",
        "busy": "double",  # busy seconds in a second, of all tasks; null if one is unknown
        "cpu": "double",  # CPU seconds in a second, likewise
        "busiest": "double",  # busy seconds in a second that one subtask of the slowest task has
        "back_pressured": "double",
        "in_rate": "double",
        "out_rate": "double",
        "bytes_in_rate": "double",
        "bytes_out_rate": "double",
        "clock_s": "double",
        "contended_share": "double",
        "spread": "double",  # coefficient of variation of the cost over slices
        "spread_slices": "int",
        "rates": SUBTASK_RATES,
        "state_bytes_per_s": "double",  # growth of checkpoints; 0: none; null: unknown
        "first_at": "timestamp",
        "last_at": "timestamp",
        "restarts": "int",
        "checkpoint_bytes": "bigint",
        "checkpoint_ms": "bigint",
    },
)


def sum_slices(pairs: DataFrame, span: Span) -> DataFrame:
    """PAIRS -> SLICED."""
    frame = PAIRS.select(pairs, "sum up pairs")
    is_good = F.col("kind") == "good"
    since = int((span.since - datetime(1970, 1, 1, tzinfo=span.since.tzinfo)).total_seconds() * 1e6)
    width = max(span.seconds, 1e-6) * 1e6 / SLICES
    index = F.floor((F.unix_micros("at") - since) / width)
    stride = F.round(F.log2("clock_s") * 4).cast("int")
    frame = frame.withColumns(
        {
            "slice": F.least(index, F.lit(SLICES - 1)).cast("int"),
            "stride": F.when(F.col("clock_s") > 0, stride),
        }
    )
    keys = [*_OF_JOB, *_OF_TASK, "subtask", "slice", "stride"]
    sums = {
        "rows": F.count("*"),
        "pairs": F.count_if(is_good),
        "duplicates": F.count_if(F.col("kind") == "duplicate"),
        "resets": F.count_if(F.col("kind") == "reset"),
        "nan": F.count_if(F.col("nan") & (F.col("kind") != "duplicate")),
        "contended": F.count_if(is_good & F.col("contended")),
        "clock_s": F.sum("clock_s"),
        "agreed_clock_s": _clock_of("reported_s"),
        "reported_s": F.sum("reported_s"),
        "busy_clock_s": _clock_of("busy_s"),
        "busy_s": F.sum("busy_s"),
        "cpu_clock_s": _clock_of("cpu_s"),
        "cpu_s": F.sum("cpu_s"),
        "idle_s": F.sum("idle_s"),
        "back_clock_s": _clock_of("back_pressured_s"),
        "back_pressured_s": F.sum("back_pressured_s"),
        "contended_s": F.sum(F.when(F.col("contended"), F.col("clock_s"))),
        "first_at": F.min("at"),
        "last_at": F.max("at"),
        "restarts_least": F.min("restarts"),
        "restarts_most": F.max("restarts"),
        "checkpoint_bytes": F.max_by("checkpoint_bytes", "at"),
        "checkpoint_ms": F.max_by("checkpoint_ms", "at"),
    }
    for name, short in (
        ("records_in", "in"),
        ("records_out", "out"),
        ("bytes_in", "bytes_in"),
        ("bytes_out", "bytes_out"),
    ):
        sums[f"{short}_clock_s"] = _clock_of(name)
        sums[name] = F.sum(name).cast("double")
    slices = frame.groupBy(*keys).agg(*(value.alias(name) for name, value in sums.items()))
    return SLICED.select(slices, "sum up pairs")


def _clock_of(column: str) -> Column:
    return F.sum(F.when(F.col(column).isNotNull(), F.col("clock_s")))


def rate_tasks(sliced: DataFrame) -> DataFrame:
    """SLICED -> TASKS_RATED: one row for each task of each incarnation."""
    frame = SLICED.select(sliced, "rate tasks")
    keys = [*_OF_JOB, *_OF_TASK, "subtask"]
    series = Window.partitionBy("engine_job_id", "vertex", "subtask").orderBy("stride")
    everything = Window.partitionBy("engine_job_id", "vertex", "subtask")
    # The usual interval: that of the median pair, found by a running count over strides.
    so_far = F.sum("pairs").over(series)
    before_half = so_far * 2 < F.sum("pairs").over(everything)
    frame = frame.withColumn("_long", F.when(~before_half, F.col("clock_s") / F.col("pairs")))
    usual = F.min("_long").over(everything)
    is_gap = F.col("clock_s") / F.col("pairs") > GAP * usual
    frame = frame.withColumn("gaps", F.when(is_gap, F.col("pairs")).otherwise(0))
    summed = [F.sum(name).alias(name) for name in (*_COUNTED, *_SUMMED, "gaps")]
    of_subtask = frame.groupBy(*keys).agg(
        *summed,
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        (F.max("restarts_most") - F.min("restarts_least")).alias("restarts"),
        F.max_by("checkpoint_bytes", "last_at").alias("checkpoint_bytes"),
        F.max_by("checkpoint_ms", "last_at").alias("checkpoint_ms"),
    )
    return _sum_subtasks(of_subtask)


def _sum_subtasks(of_subtask: DataFrame) -> DataFrame:
    clock_ratio = F.col("reported_s") / F.col("agreed_clock_s")
    frame = of_subtask.withColumn(
        "_clock_ratio", F.when(clock_ratio.between(0.5, 1.5), clock_ratio).otherwise(F.lit(1.0))
    )
    rates = {
        "busy": ("busy_s", "busy_clock_s"),
        "cpu": ("cpu_s", "cpu_clock_s"),
        "back_pressured": ("back_pressured_s", "back_clock_s"),
        "in_rate": ("records_in", "in_clock_s"),
        "out_rate": ("records_out", "out_clock_s"),
        "bytes_in_rate": ("bytes_in", "bytes_in_clock_s"),
        "bytes_out_rate": ("bytes_out", "bytes_out_clock_s"),
    }
    ratio = F.coalesce("_clock_ratio", F.lit(1.0))
    seconds = {rate: F.col(clock) * ratio for rate, (_, clock) in rates.items()}
    frame = frame.withColumns(
        {
            rate: F.when(seconds[rate] > 0, F.col(amount) / seconds[rate])
            for rate, (amount, _) in rates.items()
        }
    )
    summed = (*_COUNTED, "gaps", "contended_s", "clock_s")
    subtask_rate = divide_by_busy_time(F.col("out_rate"), F.col("busy")).alias(TRUE_OUTPUT)
    aggregates = [F.sum(name).alias(name) for name in summed]
    aggregates.append(F.collect_list(F.struct("vertex", "subtask", subtask_rate)).alias("rates"))
    aggregates += [_sum_if_complete(name).alias(name) for name in rates if name != "back_pressured"]
    tasks = frame.groupBy(*_OF_JOB, *_OF_TASK).agg(
        *aggregates,
        F.max("back_pressured").alias("back_pressured"),
        F.max("pairs").alias("most_pairs"),
        F.max(F.col("clock_s") * F.coalesce("_clock_ratio", F.lit(1.0))).alias("seconds"),
        F.sum("busy_s").alias("busy_s"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.max("restarts").alias("restarts"),
        F.max_by("checkpoint_bytes", "last_at").alias("checkpoint_bytes"),
        F.max_by("checkpoint_ms", "last_at").alias("checkpoint_ms"),
    )
    return TASKS_RATED.select(tasks, "rate tasks")


def _sum_if_complete(name: str) -> Column:
    """The sum, or null if a part is unknown: a sum without it would be too low."""
    return F.when(F.count(name) == F.count("*"), F.sum(name))


def divide_by_busy_time(rate: Column, busy: Column) -> Column:
    """Records per second of useful time, from those per second, busy seconds per second, and the
    column `busy_s`, the busy seconds seen; null without evidence."""
    return F.when((F.col("busy_s") >= MIN_BUSY_S) & (busy > 0), rate / busy)


def rate_jobs(rated: DataFrame, sliced: DataFrame) -> DataFrame:
    """TASKS_RATED and SLICED -> JOBS_RATED: one row for each incarnation.

    Input records are those of its sources, output records those of its sinks; busy time is that of
    all tasks.
    """
    frame = TASKS_RATED.select(rated, "rate jobs")
    summed = (*_COUNTED, "gaps", "contended_s", "clock_s")
    jobs = frame.groupBy(*_OF_JOB).agg(
        *(F.sum(name).alias(name) for name in summed),
        F.max("seconds").alias("seconds"),
        F.max("subtasks").alias("subtasks"),
        F.max("most_pairs").alias("most_pairs"),
        F.sum("busy_s").alias("busy_s"),
        _sum_if_complete("busy").alias("busy"),
        _sum_if_complete("cpu").alias("cpu"),
        _max_if_complete(F.col("busy") / F.col("subtasks")).alias("busiest"),
        F.array_sort(F.flatten(F.collect_list("rates"))).alias("rates"),
        F.max("back_pressured").alias("back_pressured"),
        _sum_of("is_source", "in_rate").alias("in_rate"),
        _sum_of("is_sink", "out_rate").alias("out_rate"),
        _sum_of("is_source", "bytes_in_rate").alias("bytes_in_rate"),
        _sum_of("is_sink", "bytes_out_rate").alias("bytes_out_rate"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.max("restarts").alias("restarts"),
        F.max_by("checkpoint_bytes", "last_at").alias("checkpoint_bytes"),
        F.max_by("checkpoint_ms", "last_at").alias("checkpoint_ms"),
    )
    share = F.when(F.col("clock_s") > 0, F.coalesce("contended_s", F.lit(0.0)) / F.col("clock_s"))
    slices = SLICED.select(sliced, "rate jobs")
    jobs = jobs.withColumn("contended_share", share)
    for of_slices in (_measure_spread(slices), _measure_growth(slices)):
        jobs = jobs.join(of_slices, "engine_job_id", "left")
    return JOBS_RATED.select(jobs, "rate jobs")


def _max_if_complete(value: Column) -> Column:
    return F.when(F.count(value) == F.count("*"), F.max(value))


def _sum_of(flag: str, name: str) -> Column:
    """The sum over the tasks with this flag; null if one of them is unknown."""
    is_complete = F.count(F.when(F.col(flag), F.col(name))) == F.count_if(flag)
    return F.when(is_complete, F.sum(F.when(F.col(flag), F.col(name))))


def _measure_spread(sliced: DataFrame) -> DataFrame:
    """The variation of the cost of a record over the window's slices, by incarnation.

    The cost is by CPU time, or by busy time if no slice has CPU time; the two are never mixed.
    """
    of_slice = sliced.groupBy("engine_job_id", "slice").agg(
        F.sum("busy_s").alias("busy_s"),
        F.sum("busy_clock_s").alias("busy_clock_s"),
        F.sum("cpu_s").alias("cpu_s"),
        F.sum("cpu_clock_s").alias("cpu_clock_s"),
        F.sum(F.when(F.col("is_source"), F.col("records_in"))).alias("records_in"),
    )
    is_enough = (F.col("busy_s") >= MIN_SLICE_BUSY_S) & (F.col("records_in") > 0)
    is_complete = F.col("cpu_clock_s") >= WHOLE * F.col("busy_clock_s")
    by_cpu = F.when(is_complete, F.col("cpu_s") / F.col("records_in"))
    has_cpu_time = F.max(by_cpu.isNotNull()).over(Window.partitionBy("engine_job_id"))
    cost = F.when(has_cpu_time, by_cpu).otherwise(F.col("busy_s") / F.col("records_in"))
    return (
        of_slice.where(is_enough)
        .withColumn("_cost", cost)
        .groupBy("engine_job_id")
        .agg(
            (F.stddev_samp("_cost") / F.avg("_cost")).alias("spread"),
            F.count("_cost").cast("int").alias("spread_slices"),
        )
    )


def _measure_growth(sliced: DataFrame) -> DataFrame:
    """The growth of the checkpoints over the window's slices, by incarnation."""
    points = sliced.groupBy("engine_job_id", "slice").agg(
        F.max_by("checkpoint_bytes", "last_at").cast("double").alias("_state"),
        F.max("last_at").alias("_at"),
    )
    growth = fit_rising_line("_state", F.unix_micros("_at") / 1e6)
    is_known = F.count("_state") >= MIN_POINTS
    return points.groupBy("engine_job_id").agg(
        F.when(is_known, F.coalesce(growth, F.lit(0.0))).alias("state_bytes_per_s")
    )


def choose_incarnations(rated: DataFrame) -> DataFrame:
    """JOBS_RATED -> JOBS_RATED: choose the incarnation that represents each job.

    That is the newest one. While it has too few samples for a cost, it is the newest one at the
    same site that has a cost. After `TRUSTED_AFTER_S` the newest one counts however little it did,
    since an older one may have been another program. `last_at` is that of the job, of any
    incarnation.
    """
    frame = JOBS_RATED.select(rated, "choose incarnations")
    of_job = Window.partitionBy("composition", "job_name")
    site_now = F.max_by("site", "last_at").over(of_job)
    has_cost = F.coalesce(F.col("busy_s") >= 1.0, F.lit(False)) | F.coalesce(
        F.col("seconds") >= TRUSTED_AFTER_S, F.lit(False)
    )
    frame = frame.withColumns(
        {"_here": F.col("site").eqNullSafe(site_now), "_has_cost": has_cost}
    ).where("_here")
    last_at = F.max("last_at").over(of_job)
    rank = F.row_number().over(
        of_job.orderBy(F.desc("_has_cost"), F.desc("last_at"), F.desc("attempt"), "engine_job_id")
    )
    frame = frame.withColumn("_rank", rank).withColumn("last_at", last_at)
    return JOBS_RATED.select(frame.where("_rank = 1"), "choose incarnations")
