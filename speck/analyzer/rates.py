"""Computes rates over the window for each subtask, task, incarnation and job.

A rate is the difference of a counter over the time it took. The time of a subtask is the sum of the
three times of its thread (`reported_s`). If that differs from the time between polls by more than a
half, or one of the three is missing, the time between polls counts. Rates of subtasks add up.

`speck.metrics.rates` does the same for the last two samples, in the service's memory and without
Spark. The code is not shared since this runs as Spark expressions; the counters are the same, and
`tests/services/analyzer/test_rates_agree.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from speck.analyzer.clean import PAIRS
from speck.analyzer.contracts import Contract
from speck.analyzer.lines import MIN_POINTS, fit_rising_line
from speck.analyzer.slicing import Slicing

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

OF_SUBTASK = ", ".join((*_OF_JOB, *_OF_TASK, "subtask"))

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


JOBS_VARIED = Contract(
    "jobs over slices",
    {
        "engine_job_id": "string",
        "spread": "double",  # coefficient of variation of the cost over slices
        "spread_slices": "int",
        "state_bytes_per_s": "double",  # growth of checkpoints; 0: none; null: unknown
    },
)

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


def sum_slices(pairs: DataFrame, slicing: Slicing) -> DataFrame:
    """PAIRS -> SLICED."""
    step = "sum up pairs"
    keys = f"{OF_SUBTASK}, slice, stride"
    return SLICED.query(
        step,
        f"""
        SELECT {keys}, {name_all(SUMS)}
        FROM (
          SELECT *, {slicing.index_of("unix_micros(at)")} AS slice, {STRIDE} AS stride,
            true AS is_counted
          FROM {{pairs}})
        GROUP BY series, {keys}
        """,
        pairs=PAIRS.check(pairs, step),
    )


def name_all(columns: Mapping[str, str]) -> str:
    """A list of expressions with their names."""
    return ", ".join(f"{value} AS {name}" for name, value in columns.items())


_NEWEST = {
    "first_at": "min(first_at)",
    "last_at": "max(last_at)",
    "checkpoint_bytes": "max(struct(last_at, checkpoint_bytes)).checkpoint_bytes",
    "checkpoint_ms": "max(struct(last_at, checkpoint_ms)).checkpoint_ms",
}
_RATES = {
    "busy": ("busy_s", "busy_clock_s"),
    "cpu": ("cpu_s", "cpu_clock_s"),
    "back_pressured": ("back_pressured_s", "back_clock_s"),
    "in_rate": ("records_in", "in_clock_s"),
    "out_rate": ("records_out", "out_clock_s"),
    "bytes_in_rate": ("bytes_in", "bytes_in_clock_s"),
    "bytes_out_rate": ("bytes_out", "bytes_out_clock_s"),
}
"""Rate of a subtask -> its amount, and the time in which it was counted."""


def rate_tasks(sliced: DataFrame) -> DataFrame:
    """SLICED -> TASKS_RATED: one row for each task of each incarnation."""
    step = "rate tasks"
    of_task = ", ".join((*_OF_JOB, *_OF_TASK))
    of_series = "engine_job_id, vertex, subtask"
    amounts = {name: f"sum({name})" for name in (*_COUNTED, *_SUMMED, "gaps")}
    amounts |= {**_NEWEST, "restarts": "max(restarts_most) - min(restarts_least)"}
    rates = {
        rate: f"CASE WHEN {clock} * ratio > 0 THEN {amount} / ({clock} * ratio) END"
        for rate, (amount, clock) in _RATES.items()
    }
    sums = {name: f"sum({name})" for name in (*_COUNTED, "gaps", "contended_s", "clock_s")}
    sums |= {rate: _sum_if_complete(f"_{rate}") for rate in _RATES}
    subtask_rate = f"{divide_by_busy_time('_out_rate', '_busy')} AS {TRUE_OUTPUT}"
    sums |= {
        **_NEWEST,
        "rates": f"collect_list(struct(vertex, subtask, {subtask_rate}))",
        "back_pressured": "max(_back_pressured)",
        "most_pairs": "max(pairs)",
        "seconds": "max(clock_s * ratio)",
        "busy_s": "sum(busy_s)",
        "restarts": "max(restarts)",
    }
    return TASKS_RATED.query(
        step,
        f"""
        WITH counted AS (
          SELECT *,
            sum(pairs) OVER (PARTITION BY {of_series} ORDER BY stride) AS so_far,
            sum(pairs) OVER (PARTITION BY {of_series}) AS all_pairs,
            clock_s / pairs AS mean_s
          FROM {{sliced}}
        ),
        -- the usual interval: that of the median pair, found by a running count over strides
        usual AS (
          SELECT *,
            min(CASE WHEN so_far * 2 >= all_pairs THEN mean_s END)
              OVER (PARTITION BY {of_series}) AS usual_s
          FROM counted
        ),
        found_gaps AS (
          SELECT *, CASE WHEN mean_s > {GAP} * usual_s THEN pairs ELSE 0 END AS gaps FROM usual
        ),
        of_subtask AS (
          SELECT {of_task}, subtask, {name_all(amounts)}
          FROM found_gaps GROUP BY {of_task}, subtask
        ),
        measured AS (
          SELECT *,
            CASE WHEN reported_s / agreed_clock_s BETWEEN 0.5D AND 1.5D
              THEN reported_s / agreed_clock_s ELSE 1D END AS ratio
          FROM of_subtask
        ),
        rated AS (
          SELECT *, {name_all({f"_{rate}": value for rate, value in rates.items()})}
          FROM measured
        )
        SELECT {of_task}, {name_all(sums)} FROM rated GROUP BY {of_task}
        """,
        sliced=SLICED.check(sliced, step),
    )


def divide_by_busy_time(rate: str, busy: str) -> str:
    """Records per second of useful time, from those per second, busy seconds per second, and the
    column `busy_s`, the busy seconds seen; null without evidence."""
    return f"CASE WHEN busy_s >= {MIN_BUSY_S} AND {busy} > 0 THEN {rate} / {busy} END"


def _sum_if_complete(value: str) -> str:
    """The sum, or null if a part is unknown: a sum without it would be too low."""
    return f"CASE WHEN count({value}) = count(*) THEN sum({value}) END"


def _sum_of(flag: str, value: str) -> str:
    """The sum over the tasks with this flag; null if one of them is unknown."""
    flagged = f"CASE WHEN {flag} THEN {value} END"
    return f"CASE WHEN count({flagged}) = count_if({flag}) THEN sum({flagged}) END"


def vary_over_slices(sliced: DataFrame) -> DataFrame:
    """SLICED -> JOBS_VARIED: one row for each incarnation.

    `spread` is the variation of the cost of a record over the window's slices: by CPU time, or by
    busy time if no slice has CPU time; the two are never mixed.
    """
    step = "compare slices"
    return JOBS_VARIED.query(
        step,
        f"""
        WITH of_slice AS (
          SELECT engine_job_id, slice,
            sum(busy_s) AS busy_s, sum(busy_clock_s) AS busy_clock_s,
            sum(cpu_s) AS cpu_s, sum(cpu_clock_s) AS cpu_clock_s,
            sum(CASE WHEN is_source THEN records_in END) AS records_in,
            max(last_at) AS at,
            cast(max(struct(last_at, checkpoint_bytes)).checkpoint_bytes AS double) AS state
          FROM {{sliced}} GROUP BY engine_job_id, slice
        ),
        costs AS (
          SELECT *,
            CASE WHEN is_evidence AND cpu_clock_s >= {WHOLE} * busy_clock_s
              THEN cpu_s / records_in END AS by_cpu,
            CASE WHEN is_evidence THEN busy_s / records_in END AS by_busy
          FROM (
            SELECT *, busy_s >= {MIN_SLICE_BUSY_S} AND records_in > 0 AS is_evidence
            FROM of_slice)
        ),
        compared AS (
          SELECT engine_job_id,
            count(by_cpu) AS cpu_slices, stddev_samp(by_cpu) / avg(by_cpu) AS cpu_spread,
            count(by_busy) AS busy_slices, stddev_samp(by_busy) / avg(by_busy) AS busy_spread,
            CASE WHEN count(state) >= {MIN_POINTS}
              THEN coalesce({fit_rising_line("state", "unix_micros(at) / 1e6D")}, 0D) END
              AS state_bytes_per_s
          FROM costs GROUP BY engine_job_id
        )
        SELECT engine_job_id, state_bytes_per_s,
          CASE WHEN cpu_slices > 0 THEN cpu_spread ELSE busy_spread END AS spread,
          CASE WHEN cpu_slices > 0 THEN cast(cpu_slices AS int)
            WHEN busy_slices > 0 THEN cast(busy_slices AS int) END AS spread_slices
        FROM compared
        """,
        sliced=SLICED.check(sliced, step),
    )


def rate_jobs(rated: DataFrame, varied: DataFrame) -> DataFrame:
    """TASKS_RATED and JOBS_VARIED -> JOBS_RATED: one row for each incarnation.

    Input records are those of its sources, output records those of its sinks; busy time is that of
    all tasks.
    """
    step = "rate jobs"
    of_job = ", ".join(_OF_JOB)
    per_subtask = "busy / subtasks"
    sums = {name: f"sum({name})" for name in (*_COUNTED, "gaps", "contended_s", "clock_s")}
    sums |= {
        **_NEWEST,
        "seconds": "max(seconds)",
        "subtasks": "max(subtasks)",
        "most_pairs": "max(most_pairs)",
        "busy_s": "sum(busy_s)",
        "busy": _sum_if_complete("busy"),
        "cpu": _sum_if_complete("cpu"),
        "busiest": f"CASE WHEN count({per_subtask}) = count(*) THEN max({per_subtask}) END",
        "rates": "array_sort(flatten(collect_list(rates)))",
        "back_pressured": "max(back_pressured)",
        "in_rate": _sum_of("is_source", "in_rate"),
        "out_rate": _sum_of("is_sink", "out_rate"),
        "bytes_in_rate": _sum_of("is_source", "bytes_in_rate"),
        "bytes_out_rate": _sum_of("is_sink", "bytes_out_rate"),
        "restarts": "max(restarts)",
    }
    return JOBS_RATED.query(
        step,
        f"""
        WITH jobs AS (SELECT {of_job}, {name_all(sums)} FROM {{rated}} GROUP BY {of_job})
        SELECT *,
          CASE WHEN clock_s > 0 THEN coalesce(contended_s, 0D) / clock_s END AS contended_share
        FROM jobs LEFT JOIN {{varied}} USING (engine_job_id)
        """,
        rated=TASKS_RATED.check(rated, step),
        varied=JOBS_VARIED.check(varied, step),
    )
