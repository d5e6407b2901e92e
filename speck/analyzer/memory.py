"""What jobs and engines need of the heap, by regression over samples.

- *State*: the size of a job's checkpoints over time, by least squares over the slices of the
  window (`rates.rate_jobs`). A job grows if a line fits well (`lines.FIT`) and rises.
- *Heap of a site*: between two collections a heap fills with garbage, so only the least use of each
  minute counts. Regressed on the subtasks that ran, it gives the heap of a subtask; regressed on
  time, its growth. Growth of the heap counts only where state grows as well: a heap whose collector
  has not run for minutes looks alike.
- *Heap of a byte of state*: growth of the heap over growth of the state of the site's jobs. Objects
  are larger than the bytes that they are written as.

A job's heap is that of its subtasks plus that of its state.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.lines import fit_rising_line
from speck.metrics.dataset.schema import SITES

BIN_S = 60
SUBTASK_BYTES = 10_000_000
"""Heap of a subtask where the samples do not show it; the same as in `speck.placement.instance`."""
STATE_FACTOR = 3.0
"""Heap bytes of a byte of state where the samples do not show it: keys, windows and their map
entries as objects."""
FACTORS = (1.0, 20.0)
"""Limits of the heap bytes of a byte of state."""

HEAPS = Contract(
    "heaps",
    {
        "site": "string",
        "heap_max_bytes": "double",
        "heap_least_bytes": "double",  # least use in the window: soon after a collection
        "heap_least_at": "timestamp",
        "heap_bytes_per_s": "double",  # growth of the least use of a minute; null: no line fits
        "heap_bytes_per_subtask": "double",  # null: the samples do not show it
    },
)


def measure_heaps(rows: DataFrame) -> DataFrame:
    """SITES rows -> HEAPS."""
    frame = contract_of(SITES).select(rows, "measure heaps")
    seconds = F.unix_micros("at") / 1e6
    bins = (
        frame.withColumn("_bin", F.floor(seconds / BIN_S))
        .groupBy("site", "_bin")
        .agg(
            F.min("heap_used_bytes").cast("double").alias("_heap"),
            F.min_by("at", "heap_used_bytes").alias("_at"),
            F.avg(F.col("slots_total") - F.col("slots_free")).alias("_used"),
            F.max_by("heap_max_bytes", "at").cast("double").alias("_max"),
        )
    )
    heaps = bins.groupBy("site").agg(
        F.max_by("_max", "_bin").alias("heap_max_bytes"),
        F.min("_heap").alias("heap_least_bytes"),
        F.min_by("_at", "_heap").alias("heap_least_at"),
        fit_rising_line("_heap", F.unix_micros("_at") / 1e6).alias("heap_bytes_per_s"),
        fit_rising_line("_heap", F.col("_used")).alias("heap_bytes_per_subtask"),
    )
    return HEAPS.select(heaps, "measure heaps")


def choose_state_factor() -> Column:
    """Heap bytes of a byte of state at a site, of HEAPS and `_growth`, the growth of all state."""
    low, high = (F.lit(limit) for limit in FACTORS)
    measured = F.col("heap_bytes_per_s") / F.col("_growth")
    is_measured = (F.col("_growth") > 0) & F.col("heap_bytes_per_s").isNotNull()
    return F.when(is_measured, F.least(F.greatest(measured, low), high)).otherwise(
        F.lit(STATE_FACTOR)
    )


def estimate_heap() -> Column:
    """The heap that a site's engine uses at the end of the window, by the same columns and
    `heap_per_state_byte`: the least use, and what state has grown since."""
    since_s = (F.unix_micros("last_at") - F.unix_micros("heap_least_at")) / 1e6
    grown = F.coalesce(F.col("_growth"), F.lit(0.0)) * since_s * F.col("heap_per_state_byte")
    return F.col("heap_least_bytes") + grown
