"""Computes rates over the window for each subtask, task, incarnation and job. Pure.

A rate is the difference of a counter over the time it took. The time of a subtask is the sum of the
three times of its thread (`reported_s`). If that differs from the time between polls by more than a
half, or one of the three is missing, the time between polls counts. Rates of subtasks add up.

`speck.metrics.rates` does the same for the last two samples, in the service's memory. The code is
not shared since this begins with sums that Spark has computed; the counters are the same, and
`tests/services/analyzer/test_rates_agree.py` compares the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from speck.analyzer.sums import COUNTED, OF_JOB, OF_TASK, SUMMED
from speck.analyzer.unknowns import (
    add,
    add_all,
    divide,
    multiply,
    pick_least,
    pick_most,
    pick_newest,
)
from speck.analyzer.variation import vary_over_slices
from speck.model.values import JsonObject

GAP = 3.0
"""A pair this many usual intervals long is a gap."""
AGREES = (0.5, 1.5)
"""Limits of reported time by the time between polls."""

TRUE_OUTPUT = "trueOutputProcessingRate"
"""flink-placement's name for records sent per second of useful time."""
MIN_BUSY_S = 1.0
"""Minimum busy time that is evidence of a rate per second of useful time, or of a cost."""

_RATES = {
    "busy": ("busy_s", "busy_clock_s"),  # busy seconds in a second
    "cpu": ("cpu_s", "cpu_clock_s"),  # CPU seconds in a second
    "back_pressured": ("back_pressured_s", "back_clock_s"),  # share of time
    "in_rate": ("records_in", "in_clock_s"),  # records in a second
    "out_rate": ("records_out", "out_clock_s"),
    "bytes_in_rate": ("bytes_in", "bytes_in_clock_s"),
    "bytes_out_rate": ("bytes_out", "bytes_out_clock_s"),
}
"""Rate of a subtask -> its amount, and the time in which it was counted."""
_ENTERING = (("in_rate", "is_source"), ("bytes_in_rate", "is_source"))
_LEAVING = (("out_rate", "is_sink"), ("bytes_out_rate", "is_sink"))


def rate_tasks(sliced: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of SLICED -> one for each task of each incarnation: its identity, counts, rates, and
    what `_summarise` and `_rate_task` add.

    `seconds` are those covered by good pairs, of the subtask that has most; `rates` are those of
    its subtasks per second of useful time; `most_pairs` those of one subtask.
    """
    subtasks = group(sliced, (*OF_JOB, *OF_TASK, "subtask"))
    tasks = group(map(_rate_subtask, subtasks), (*OF_JOB, *OF_TASK))
    return [_rate_task(subtasks) for subtasks in tasks]


def group(rows: Iterable[JsonObject], keys: Sequence[str]) -> Iterator[list[JsonObject]]:
    """The rows that have the same values in these columns."""
    groups: defaultdict[tuple[Any, ...], list[JsonObject]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    yield from groups.values()


def _rate_subtask(rows: Sequence[JsonObject]) -> JsonObject:
    sums = {name: add(row[name] for row in rows) for name in (*COUNTED, *SUMMED)}
    most = pick_most(row["restarts_most"] for row in rows)
    least = pick_least(row["restarts_least"] for row in rows)
    ratio = divide(sums["reported_s"], sums["agreed_clock_s"])
    if ratio is None or not AGREES[0] <= ratio <= AGREES[1]:
        ratio = 1.0
    rates = {
        rate: divide(sums[amount], multiply(sums[clock], ratio))
        for rate, (amount, clock) in _RATES.items()
    }
    return {
        **rows[0],
        **sums,
        **_summarise(rows),
        **rates,
        "gaps": _count_gaps(rows),
        "restarts": None if most is None or least is None else most - least,
        "seconds": multiply(sums["clock_s"], ratio),
    }


def _summarise(rows: Sequence[JsonObject]) -> JsonObject:
    """First and last times, and the newest checkpoint."""
    return {
        "first_at": pick_least(row["first_at"] for row in rows),
        "last_at": pick_most(row["last_at"] for row in rows),
        "checkpoint_bytes": pick_newest(rows, "checkpoint_bytes"),
        "checkpoint_ms": pick_newest(rows, "checkpoint_ms"),
    }


def _count_gaps(rows: Sequence[JsonObject]) -> int:
    """Pairs of one subtask much longer than the median pair, which is found by a running count over
    lengths."""
    strides: defaultdict[int, list[JsonObject]] = defaultdict(list)
    for row in rows:
        if row["pairs"] and row["clock_s"] is not None and row["stride"] is not None:
            strides[row["stride"]].append(row)
    all_pairs = sum(row["pairs"] for row in rows)
    so_far, usual_s = 0, None
    for stride in sorted(strides):
        so_far += sum(row["pairs"] for row in strides[stride])
        if so_far * 2 >= all_pairs:
            # the shortest of all lengths from the median's on
            usual_s = min(row["clock_s"] / row["pairs"] for row in strides[stride])
            break
    if usual_s is None:
        return 0
    known = (row for each in strides.values() for row in each)
    return sum(row["pairs"] for row in known if row["clock_s"] / row["pairs"] > GAP * usual_s)


def _rate_task(subtasks: Sequence[JsonObject]) -> JsonObject:
    rates = [
        {
            "vertex": each["vertex"],
            "subtask": each["subtask"],
            TRUE_OUTPUT: divide_by_busy_time(each["out_rate"], each["busy"], each["busy_s"]),
        }
        for each in subtasks
    ]
    return {
        **{name: subtasks[0][name] for name in (*OF_JOB, *OF_TASK)},
        **_add_counts(subtasks),
        **_summarise(subtasks),
        **{rate: add_all(each[rate] for each in subtasks) for rate in _RATES},
        "back_pressured": pick_most(each["back_pressured"] for each in subtasks),
        "busy_s": add(each["busy_s"] for each in subtasks),
        "most_pairs": pick_most(each["pairs"] for each in subtasks),
        "rates": rates,
    }


def _add_counts(rows: Sequence[JsonObject]) -> JsonObject:
    names = (*COUNTED, "gaps", "contended_s", "clock_s")
    return {name: add(row[name] for row in rows) for name in names} | {
        "seconds": pick_most(row["seconds"] for row in rows),
        "restarts": pick_most(row["restarts"] for row in rows),
    }


def divide_by_busy_time(
    rate: float | None, busy: float | None, busy_s: float | None
) -> float | None:
    """Records per second of useful time, from those per second, busy seconds per second, and the
    busy seconds seen; None without evidence."""
    is_evidence = busy_s is not None and busy_s >= MIN_BUSY_S and busy is not None and busy > 0
    return divide(rate, busy) if is_evidence else None


def rate_jobs(sliced: Sequence[JsonObject], tasks: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of SLICED and those of `rate_tasks` -> one for each incarnation: its identity, counts,
    rates, and the variation over slices.

    Input records are those of its sources, output records those of its sinks; busy time (`busy`, in
    busy seconds a second) is that of all tasks, None if one is unknown. `busiest`: busy seconds in
    a second that one subtask of the slowest task has; `subtasks` of the task that has most.
    """
    varied = vary_over_slices(sliced)
    return [_rate_job(each, varied[each[0]["engine_job_id"]]) for each in group(tasks, [*OF_JOB])]


def _rate_job(tasks: Sequence[JsonObject], varied: Mapping[str, Any]) -> JsonObject:
    by_subtask = [divide(task["busy"], task["subtasks"]) for task in tasks]
    counts = _add_counts(tasks)
    share = divide(counts["contended_s"] or 0.0, counts["clock_s"])
    return {
        **{name: tasks[0][name] for name in OF_JOB},
        **counts,
        **_summarise(tasks),
        **varied,
        "most_pairs": pick_most(task["most_pairs"] for task in tasks),
        "subtasks": pick_most(task["subtasks"] for task in tasks),
        "busy_s": add(task["busy_s"] for task in tasks),
        "busy": add_all(task["busy"] for task in tasks),
        "cpu": add_all(task["cpu"] for task in tasks),
        "busiest": None if None in by_subtask else pick_most(by_subtask),
        "back_pressured": pick_most(task["back_pressured"] for task in tasks),
        **{
            rate: add_all(task[rate] for task in tasks if task[flag])
            for rate, flag in (*_ENTERING, *_LEAVING)
        },
        "rates": sorted(
            (rate for task in tasks for rate in task["rates"]),
            key=lambda rate: (rate["vertex"], rate["subtask"]),
        ),
        "contended_share": share,
    }
