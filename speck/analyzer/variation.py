"""Compares the slices of a window: how steady a job's cost is, and how its state grows. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from speck.analyzer.lines import MIN_POINTS, fit_rising_line
from speck.analyzer.unknowns import add, divide, pick_most, pick_newest
from speck.model.values import JsonObject

WHOLE = 0.99
"""CPU time must be reported for this share of the time with busy time (1, except for rounding)."""
MIN_SLICE_BUSY_S = 0.1
"""Minimum busy time for which a slice is evidence of a job's cost."""


def vary_over_slices(sliced: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Rows of SLICED -> by incarnation: `spread`, the coefficient of variation of the cost of a
    record over the window's slices; `spread_slices`, how many have a cost; and `state_bytes_per_s`,
    the growth of checkpoints (0: none; None: unknown).

    The cost is by CPU time, or by busy time if no slice has CPU time; the two are never mixed.
    """
    slices: defaultdict[str, defaultdict[int, list[JsonObject]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in sliced:
        slices[row["engine_job_id"]][row["slice"]].append(row)
    return {name: _compare(list(of_job.values())) for name, of_job in slices.items()}


def _compare(slices: Sequence[Sequence[JsonObject]]) -> JsonObject:
    costs = [_cost(rows) for rows in slices]
    by_cpu, by_busy_time = (
        [cost for cost in kind if cost is not None] for kind in zip(*costs, strict=True)
    )
    known = by_cpu or by_busy_time
    mean = statistics.fmean(known) if known else None
    return {
        "spread": divide(statistics.stdev(known), mean) if len(known) > 1 else None,
        "spread_slices": len(known) or None,
        "state_bytes_per_s": _grow(slices),
    }


def _cost(rows: Sequence[JsonObject]) -> tuple[float | None, float | None]:
    """Seconds a record by CPU time and by busy time; None without evidence."""
    busy_s, cpu_s = (add(row[name] for row in rows) for name in ("busy_s", "cpu_s"))
    records = add(row["records_in"] for row in rows if row["is_source"])
    if busy_s is None or busy_s < MIN_SLICE_BUSY_S or records is None or records <= 0:
        return None, None
    busy_clock_s, cpu_clock_s = (
        add(row[name] for row in rows) or 0.0 for name in ("busy_clock_s", "cpu_clock_s")
    )
    is_whole = cpu_clock_s > 0 and cpu_clock_s >= WHOLE * busy_clock_s
    return divide(cpu_s, records) if is_whole else None, busy_s / records


def _grow(slices: Sequence[Sequence[JsonObject]]) -> float | None:
    points = [
        (at.timestamp(), float(state))
        for rows in slices
        if (state := pick_newest(rows, "checkpoint_bytes")) is not None
        and (at := pick_most(row["last_at"] for row in rows)) is not None
    ]
    return None if len(points) < MIN_POINTS else fit_rising_line(points) or 0.0
