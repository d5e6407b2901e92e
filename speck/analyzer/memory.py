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

from speck.analyzer.lines import fit_rising_line

BIN_S = 60
STATE_FACTOR = 3.0
"""Heap bytes of a byte of state where the samples do not show it: keys, windows and their map
entries as objects."""
FACTORS = (1.0, 20.0)
"""Limits of the heap bytes of a byte of state."""

HEAPS = {
    "heap_max_bytes": "double",
    "heap_least_bytes": "double",  # least use in the window: soon after a collection
    "heap_least_at": "timestamp",
    "heap_bytes_per_s": "double",  # growth of the least use of a minute; null: no line fits
    "heap_bytes_per_subtask": "double",  # null: the samples do not show it
}
"""The columns of `measure_heaps`, beside `site`."""

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


def measure_heaps(binned: str) -> str:
    """A query: `site` and `bins` -> `site` and HEAPS."""
    return f"""
        SELECT site,
          max(struct(at, heap_max)).heap_max AS heap_max_bytes,
          min(heap) AS heap_least_bytes,
          min(struct(heap, at)).at AS heap_least_at,
          {fit_rising_line("heap", "unix_micros(at) / 1e6D")} AS heap_bytes_per_s,
          {fit_rising_line("heap", "used")} AS heap_bytes_per_subtask
        FROM (SELECT site, inline(bins) FROM {binned})
        GROUP BY site"""


CHOOSE_STATE_FACTOR = f"""
    CASE WHEN growth > 0 AND heap_bytes_per_s IS NOT NULL
      THEN least(greatest(heap_bytes_per_s / growth, {FACTORS[0]}D), {FACTORS[1]}D)
      ELSE {STATE_FACTOR}D END"""
"""Heap bytes of a byte of state at a site, by HEAPS and `growth`, the growth of all state."""

ESTIMATE_HEAP = """
    heap_least_bytes + coalesce(growth, 0D) * heap_per_state_byte
      * (unix_micros(last_at) - unix_micros(heap_least_at)) / 1e6D"""
"""The heap that a site's engine uses at the end of the window, by the same columns and
`heap_per_state_byte`: the least use, and what state has grown since."""
