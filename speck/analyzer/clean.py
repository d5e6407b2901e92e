"""Computes differences between successive rows of counters of one subtask.

How it treats irregular rows:

- *duplicates* (a row is in a part file and in a compacted one): they are adjacent in order of time;
  the second one is counted but not used;
- *resets*: a falling counter, or a rising number of restarts, means that counting restarted within
  the pair. The growth before that is unknown, so the pair is counted but not used;
- *gaps* (a pair over 3 usual intervals long): the counters kept growing, so the difference is
  valid; it is used over the whole time of the gap, and counted;
- *stale repeats* (the engine reports its last values again): no special case. The three times of a
  subtask's thread add up to elapsed time, so `reported_s` of a repeat is 0, like its differences,
  and the next pair covers the time of both;
- *NaN* is null: not reported. Differences with a null are null.

A fault in one counter does not spoil the others, but a reset spoils the pair.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.metrics.dataset.schema import TASKS
from speck.model.measurement import COUNTS, TIMES

CONTENDED = 0.6
"""Above this share of busy cores on the machine, busy time includes waiting for a core."""

CPU = "cpu_ms"
"""CPU time of the thread; not one of the times that add up to elapsed time."""

_IDENTITY = (
    "composition",
    "job_name",
    "site",
    "engine_job_id",
    "attempt",
    "vertex",
    "subtask",
    "subtasks",
    "is_source",
    "is_sink",
)
_TYPES = contract_of(TASKS).columns

PAIRS = Contract(
    "pairs",
    {name: _TYPES[name] for name in _IDENTITY}
    | {
        "at": "timestamp",
        "kind": "string",  # first, duplicate, reset, good
        "clock_s": "double",  # by the time of the polls; like all below, of good pairs only
        "reported_s": "double",  # by the sum of the three times
        "busy_s": "double",
        "idle_s": "double",
        "back_pressured_s": "double",
        "cpu_s": "double",  # CPU time of its thread
        "records_in": "bigint",
        "records_out": "bigint",
        "bytes_in": "bigint",
        "bytes_out": "bigint",
        "contended": "boolean",
        "nan": "boolean",  # of any row: no busy time reported
        "restarts": "int",  # of any row, a total
        "checkpoint_bytes": "bigint",
        "checkpoint_ms": "bigint",
    },
)


def pair_samples(tasks: DataFrame) -> DataFrame:
    """TASKS rows, in any order -> PAIRS: for each row the difference from the previous one.

    One shuffle: by subtask, sorted by time within it.
    """
    rows = contract_of(TASKS).select(tasks, "pair samples")
    rows = rows.withColumns({name: F.when(~F.isnan(name), F.col(name)) for name in (*TIMES, CPU)})
    order = Window.partitionBy("engine_job_id", "vertex", "subtask").orderBy(
        "at", *TIMES, *COUNTS, "restarts"
    )
    counters = (*TIMES, CPU, *COUNTS, "restarts")
    before = {f"_{name}": F.lag(name).over(order) for name in ("at", *counters)}
    rows = rows.withColumns(before).withColumn("kind", _classify()).withColumns(_subtract())
    return PAIRS.select(rows, "pair samples")


def _classify() -> Column:
    falls = [F.col(name) < F.col(f"_{name}") for name in (*TIMES, CPU, *COUNTS)]
    is_reset = F.col("restarts") != F.col("_restarts")
    for fall in falls:
        is_reset = F.coalesce(is_reset, F.lit(False)) | F.coalesce(fall, F.lit(False))
    return (
        F.when(F.col("_at").isNull(), "first")
        .when(F.col("_at") == F.col("at"), "duplicate")
        .when(is_reset, "reset")
        .otherwise("good")
    )


def _subtract() -> dict[str, Column]:
    is_good = F.col("kind") == "good"
    clock = (F.unix_micros("at") - F.unix_micros("_at")) / 1e6
    seconds = {
        name.replace("_ms", "_s"): (F.col(name) - F.col(f"_{name}")) / 1000.0 for name in TIMES
    }
    reported_s = seconds["busy_s"] + seconds["idle_s"] + seconds["back_pressured_s"]
    differences = {"clock_s": clock, "reported_s": reported_s, **seconds}
    differences["cpu_s"] = (F.col(CPU) - F.col(f"_{CPU}")) / 1000.0
    differences |= {name: F.col(name) - F.col(f"_{name}") for name in COUNTS}
    return {name: F.when(is_good, value) for name, value in differences.items()} | {
        "contended": F.coalesce(F.nanvl("host_cpu", F.lit(None)) > CONTENDED, F.lit(False)),
        "nan": F.col("busy_ms").isNull(),
    }
