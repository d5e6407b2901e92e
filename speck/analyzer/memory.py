"""What jobs and engines need of the heap, by regression over samples.

- *State*: the size of a job's checkpoints over time, by least squares over the slices of the
  window (`variation`). A job grows if a line fits well (`lines.FIT`) and rises.
- *Heap of a site*: between two collections a heap fills with garbage, so only the least use of each
  minute counts. Regressed on the subtasks that ran, it gives the heap of a subtask; regressed on
  time, its growth. Growth of the heap counts only where state grows as well: a heap whose collector
  has not run for minutes looks alike.
- *Heap of a byte of state*: growth of the heap over growth of the state of the site's jobs. Objects
  are larger than the bytes that they are written as.

A job's heap is that of its subtasks plus that of its state.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from speck.analyzer.lines import fit_rising_line
from speck.analyzer.unknowns import divide, pick_least, pick_newest
from speck.model.values import JsonObject

BIN_S = 60
STATE_FACTOR = 3.0
"""Heap bytes of a byte of state where the samples do not show it: keys, windows and their map
entries as objects."""
FACTORS = (1.0, 20.0)
"""Limits of the heap bytes of a byte of state."""

HEAP_BINS = "array<struct<at:timestamp,heap:double,heap_max:double,used:double>>"
"""Minutes of a site: the least use of the heap and when it was, its limit, and the slots in use."""


def bin_heaps(rows: str, keys: str) -> str:
    """A query: SITES rows -> `bins` (HEAP_BINS) by `keys`."""
    return f"""
        SELECT {keys},
          collect_list(struct(at, heap, heap_max, used)) AS bins
        FROM (
          SELECT {keys},
            min(struct(heap_used_bytes, at)).at AS at,
            cast(min(heap_used_bytes) AS double) AS heap,
            cast(max(struct(at, heap_max_bytes)).heap_max_bytes AS double) AS heap_max,
            avg(slots_total - slots_free) AS used
          FROM {rows} WHERE heap_used_bytes IS NOT NULL
          GROUP BY {keys}, unix_micros(at) div {BIN_S * 1_000_000}L)
        GROUP BY {keys}"""


def measure_heap(bins: Iterable[JsonObject] | None) -> JsonObject:
    """A site's HEAP_BINS -> its `heap_max_bytes`; the least use in the window, soon after a
    collection, `heap_least_bytes`, and when it was, `heap_least_at`; the growth of the least use of
    a minute, `heap_bytes_per_s`; and `heap_bytes_per_subtask`. The last two are None if no line
    fits; without bins all are."""
    bins = list(bins or ())
    least = pick_least((each["heap"], each["at"]) for each in bins)
    of_time = [(each["at"].timestamp(), each["heap"]) for each in bins]
    of_use = [(each["used"], each["heap"]) for each in bins if each["used"] is not None]
    return {
        "heap_max_bytes": pick_newest(bins, "heap_max", by="at"),
        "heap_least_bytes": least and least[0],
        "heap_least_at": least and least[1],
        "heap_bytes_per_s": fit_rising_line(of_time),
        "heap_bytes_per_subtask": fit_rising_line(of_use),
    }


def choose_state_factor(heap: JsonObject, growth: float | None) -> float:
    """Heap bytes of a byte of state at a site, by its `measure_heap` and the growth of all state
    there."""
    factor = divide(heap["heap_bytes_per_s"], growth) if growth is not None and growth > 0 else None
    return STATE_FACTOR if factor is None else min(max(factor, FACTORS[0]), FACTORS[1])


def estimate_heap(
    heap: JsonObject, growth: float | None, factor: float, at: datetime | None
) -> float | None:
    """The heap that a site's engine uses at this time: the least use, and what state has grown
    since."""
    least: float | None = heap["heap_least_bytes"]
    if least is None or at is None:
        return None
    since: float = (at - heap["heap_least_at"]).total_seconds()
    return least + (growth or 0.0) * factor * since
