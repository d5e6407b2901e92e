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

from collections.abc import Iterable

from pyspark.sql import DataFrame

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
    step = "pair samples"
    timers = (*TIMES, CPU)
    counters = (*timers, *COUNTS, "restarts")
    others = [*_IDENTITY, "at", "host_cpu", *COUNTS, "restarts", "checkpoint_bytes"]
    others.append("checkpoint_ms")
    cleaned = [f"CASE WHEN NOT isnan({name}) THEN {name} END AS {name}" for name in timers]
    before = [f"lag({name}) OVER series AS _{name}" for name in ("at", *counters)]
    differences = {
        "clock_s": "(unix_micros(at) - unix_micros(_at)) / 1e6D",
        "reported_s": " + ".join(f"({name} - _{name}) / 1000D" for name in TIMES),
    }
    differences |= {_in_seconds(name): f"({name} - _{name}) / 1000D" for name in timers}
    differences |= {name: f"{name} - _{name}" for name in COUNTS}
    return PAIRS.query(
        step,
        f"""
        WITH cleaned AS (SELECT {", ".join([*others, *cleaned])} FROM {{tasks}}),
        paired AS (
          SELECT *, {", ".join(before)} FROM cleaned
          WINDOW series AS (
            PARTITION BY engine_job_id, vertex, subtask
            ORDER BY at, {", ".join((*TIMES, *COUNTS))}, restarts)
        ),
        classified AS (SELECT *, {_classify(counters[:-1])} AS kind FROM paired)
        SELECT {", ".join(_IDENTITY)}, at, kind, restarts, checkpoint_bytes, checkpoint_ms,
          {", ".join(_if_good(value, name) for name, value in differences.items())},
          coalesce(nanvl(host_cpu, null) > {CONTENDED}, false) AS contended,
          busy_ms IS NULL AS nan
        FROM classified
        """,
        tasks=contract_of(TASKS).check(tasks, step),
    )


def _in_seconds(name: str) -> str:
    return name.replace("_ms", "_s")


def _if_good(value: str, name: str) -> str:
    return f"CASE WHEN kind = 'good' THEN {value} END AS {name}"


def _classify(counters: Iterable[str]) -> str:
    falls = (f"coalesce({name} < _{name}, false)" for name in counters)
    return f"""
        CASE
          WHEN _at IS NULL THEN 'first'
          WHEN _at = at THEN 'duplicate'
          WHEN coalesce(restarts <> _restarts, false) OR {" OR ".join(falls)} THEN 'reset'
          ELSE 'good'
        END"""
