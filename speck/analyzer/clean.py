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

from collections.abc import Sequence

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
SERIES = "engine_job_id, vertex, subtask"
"""What identifies the counters of one subtask."""

ROW = ("at", *TIMES, CPU, *COUNTS, "restarts", "host_cpu", "checkpoint_bytes", "checkpoint_ms")
"""The columns of a row beside those of its subtask."""

IDENTITY = ", ".join(_IDENTITY)

_COMPARED = (*TIMES, CPU, *COUNTS, "restarts")
_TIMED_BY = ("at", *TIMES, *COUNTS, "restarts")


def lag_rows(tasks: str, within: Sequence[str]) -> str:
    """A query: TASKS rows with the columns of the row before in their series, as `_<column>`, and
    `is_last`. `within`: further columns of the rows that divide a series. They are partitioned by
    `series`, a number for both."""
    cleaned = {name: f"CASE WHEN NOT isnan({name}) THEN {name} END" for name in (*TIMES, CPU)}
    columns = (f"{cleaned.get(name, name)} AS {name}" for name in ROW)
    before = (f"lag({name}) OVER in_order AS _{name}" for name in ("at", *_COMPARED))
    keys = ", ".join((SERIES, *within))
    return f"""
        SELECT *, {", ".join(before)}, lead(at) OVER in_order IS NULL AS is_last
        FROM (
          SELECT {", ".join((*_IDENTITY, *within, *columns))}, xxhash64({keys}) AS series
          FROM {tasks})
        WINDOW in_order AS (PARTITION BY series, {keys} ORDER BY {", ".join(_TIMED_BY)})"""


def subtract_rows(paired: str, more: Sequence[str]) -> str:
    """A query: rows with those before them -> pairs: what identifies the subtask, `at`, `kind`
    (first, duplicate, reset, good), `restarts` and what else is of any row, `more`; and the
    differences, which are of good pairs only: `clock_s` by the time of the polls, `reported_s` by
    the sum of the three times, `cpu_s` of the subtask's thread, the others by their names."""
    differences = {
        "clock_s": "(unix_micros(at) - unix_micros(_at)) / 1e6D",
        "reported_s": " + ".join(f"({name} - _{name}) / 1000D" for name in TIMES),
    }
    differences |= {
        name.replace("_ms", "_s"): f"({name} - _{name}) / 1000D" for name in (*TIMES, CPU)
    }
    differences |= {name: f"{name} - _{name}" for name in COUNTS}
    of_good = (f"CASE WHEN kind = 'good' THEN {d} END AS {name}" for name, d in differences.items())
    columns = (
        IDENTITY,
        "at, kind, restarts, checkpoint_bytes, checkpoint_ms",
        *of_good,
        f"coalesce(nanvl(host_cpu, null) > {CONTENDED}, false) AS contended",
        "busy_ms IS NULL AS nan",
        *more,
    )
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {_classify()} AS kind FROM {paired})"


def _classify() -> str:
    falls = (f"coalesce({name} < _{name}, false)" for name in (*TIMES, CPU, *COUNTS))
    return f"""
        CASE
          WHEN _at IS NULL THEN 'first'
          WHEN _at = at THEN 'duplicate'
          WHEN coalesce(restarts <> _restarts, false) OR {" OR ".join(falls)} THEN 'reset'
          ELSE 'good'
        END"""
