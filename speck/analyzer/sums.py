"""What the pairs of samples of a window are summed up to, by subtask and slice, in Spark. All
figures of jobs follow from these sums (`speck.analyzer.rates`)."""

from __future__ import annotations

from collections.abc import Mapping

from speck.analyzer.contracts import Contract

OF_JOB = {
    "composition": "string",
    "job_name": "string",
    "site": "string",
    "engine_job_id": "string",
    "attempt": "int",
}
OF_TASK = {
    "vertex": "string",
    "subtasks": "int",
    "is_source": "boolean",
    "is_sink": "boolean",
}
SUMMED = (
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
COUNTED = ("rows", "pairs", "duplicates", "resets", "nan", "contended")

OF_SUBTASK = ", ".join((*OF_JOB, *OF_TASK, "subtask"))

STRIDE = "CASE WHEN clock_s > 0 THEN cast(round(log2(clock_s) * 4) AS int) END"


def _sum_clock_of(column: str) -> str:
    return f"sum(CASE WHEN {column} IS NOT NULL THEN clock_s END)"


def _if_counted(value: str) -> str:
    return f"CASE WHEN is_counted THEN {value} END"


SUMS = {
    "rows": "count_if(is_counted)",
    "pairs": "count_if(kind = 'good')",
    "duplicates": "count_if(kind = 'duplicate')",
    "resets": "count_if(kind = 'reset')",
    "nan": "count_if(nan AND is_counted AND kind <> 'duplicate')",
    "contended": "count_if(kind = 'good' AND contended)",
    "clock_s": "sum(clock_s)",
    "agreed_clock_s": _sum_clock_of("reported_s"),
    "reported_s": "sum(reported_s)",
    "busy_clock_s": _sum_clock_of("busy_s"),
    "busy_s": "sum(busy_s)",
    "cpu_clock_s": _sum_clock_of("cpu_s"),
    "cpu_s": "sum(cpu_s)",
    "idle_s": "sum(idle_s)",
    "back_clock_s": _sum_clock_of("back_pressured_s"),
    "back_pressured_s": "sum(back_pressured_s)",
    "in_clock_s": _sum_clock_of("records_in"),
    "records_in": "cast(sum(records_in) AS double)",
    "out_clock_s": _sum_clock_of("records_out"),
    "records_out": "cast(sum(records_out) AS double)",
    "bytes_in_clock_s": _sum_clock_of("bytes_in"),
    "bytes_in": "cast(sum(bytes_in) AS double)",
    "bytes_out_clock_s": _sum_clock_of("bytes_out"),
    "bytes_out": "cast(sum(bytes_out) AS double)",
    "contended_s": "sum(CASE WHEN contended THEN clock_s END)",
    "first_at": f"min({_if_counted('at')})",
    "last_at": f"max({_if_counted('at')})",
    "restarts_least": f"min({_if_counted('restarts')})",
    "restarts_most": f"max({_if_counted('restarts')})",
    "checkpoint_bytes": f"max_by(checkpoint_bytes, {_if_counted('at')})",
    "checkpoint_ms": f"max_by(checkpoint_ms, {_if_counted('at')})",
}
"""What SLICED holds of the pairs of a group: column -> aggregate. A pair that is not counted, which
has no differences, leaves no trace. None is of structs or texts: for these Spark would sort all
pairs by group."""

MERGED = {name: f"sum({name})" for name in SUMS} | {
    "first_at": "min(first_at)",
    "last_at": "max(last_at)",
    "restarts_least": "min(restarts_least)",
    "restarts_most": "max(restarts_most)",
    "checkpoint_bytes": "max_by(checkpoint_bytes, last_at)",
    "checkpoint_ms": "max_by(checkpoint_ms, last_at)",
}
"""SUMS of several groups together: column -> aggregate."""

SLICED = Contract(
    "slices",
    OF_JOB
    | OF_TASK
    | {"subtask": "int", "slice": "int", "stride": "int"}
    | dict.fromkeys(COUNTED, "bigint")
    | dict.fromkeys(SUMMED, "double")
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


def name_all(columns: Mapping[str, str]) -> str:
    """A list of expressions with their names."""
    return ", ".join(f"{value} AS {name}" for name, value in columns.items())
