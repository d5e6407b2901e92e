"""Chooses the incarnation that represents each job, and averages the rates of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from speck.analyzer.ends import End, Numbers
from speck.analyzer.rates import MIN_BUSY_S, group
from speck.analyzer.unknowns import add, divide, multiply, pick_least, pick_most, pick_newest
from speck.model.values import JsonObject

TRUSTED_AFTER_S = 60.0
"""After this long a new incarnation represents the job even without enough evidence of its cost."""

MEAN_RATES = ("in_rate", "out_rate", "bytes_in_rate", "bytes_out_rate")
COVERED = 0.9
"""A job that was measured for this share of the time since it was first seen did not pause."""

_EVER = datetime.min.replace(tzinfo=UTC)


def choose_incarnations(
    rated: Iterable[JsonObject],
    plans: Mapping[str, JsonObject],
    numbers: Mapping[End, Numbers] = MappingProxyType({}),
) -> list[JsonObject]:
    """The incarnation that represents each job, of those of `rates.rate_jobs`; wires of plans by
    incarnation; `numbers` that the ends of links published (`ends.find_numbers`).

    That is the newest one. While it has too few samples for a cost, it is the newest one at the
    same site that has a cost. After `TRUSTED_AFTER_S` the newest one counts however little it did,
    since an older one may have been another program. `last_at` is that of the job, of any
    incarnation.

    Its `mean_<rate>` are of all incarnations that read and write the same topics: records (or
    bytes) of the window by the time that they are of (`_find_time`). `covered`: the share (0 to 1)
    of the time since the job was first seen that was measured.
    """
    jobs = group(rated, ("composition", "job_name"))
    return [_choose(incarnations, plans, numbers) for incarnations in jobs]


def _choose(
    incarnations: Sequence[JsonObject],
    plans: Mapping[str, JsonObject],
    numbers: Mapping[End, Numbers],
) -> JsonObject:
    site = pick_newest(incarnations, "site")

    def precedence(row: JsonObject) -> tuple[Any, ...]:
        busy_s, seconds = row["busy_s"] or 0.0, row["seconds"] or 0.0
        has_cost = busy_s >= MIN_BUSY_S or seconds >= TRUSTED_AFTER_S
        return row["site"] == site, has_cost, row["last_at"] or _EVER, row["attempt"] or 0

    by_id = sorted(incarnations, key=lambda row: str(row["engine_job_id"]))
    chosen = max(by_id, key=precedence)
    topics = _topics_of(chosen, plans)
    alike = [row for row in incarnations if _topics_of(row, plans) == topics]
    newest_at = pick_most(row["last_at"] for row in incarnations)
    published = _pick_numbers(chosen, plans.get(chosen["engine_job_id"], {}), numbers)
    return {**chosen, **_average(alike, published), "last_at": newest_at}


def _topics_of(row: JsonObject, plans: Mapping[str, JsonObject]) -> tuple[Any, Any]:
    plan = plans.get(row["engine_job_id"], {})
    return plan.get("source_topic"), plan.get("sink_topic")


def _pick_numbers(
    job: JsonObject, plan: JsonObject, numbers: Mapping[End, Numbers]
) -> dict[str, Numbers]:
    """The numbers of the job's two ends, by the rate that they are of."""
    ends = (("in_rate", "reader", "source"), ("out_rate", "producer", "sink"))
    named = {
        rate: (job["composition"], job["job_name"], role, plan.get(f"{end}_site"),
               plan.get(f"{end}_topic"))
        for rate, role, end in ends
    }  # fmt: skip
    return {rate: numbers[end] for rate, end in named.items() if end in numbers}


def _average(alike: Sequence[JsonObject], published: Mapping[str, Numbers]) -> JsonObject:
    first_at = pick_least(row["first_at"] for row in alike)
    last_at = pick_most(row["last_at"] for row in alike)
    present_s = None if first_at is None else (last_at - first_at).total_seconds()
    share = divide(add(row["seconds"] for row in alike), present_s)
    covered = 1.0 if share is None else min(1.0, share)
    if covered >= COVERED and len(alike) == 1:
        return {"covered": covered} | {f"mean_{rate}": alike[0][rate] for rate in MEAN_RATES}
    sums = {
        rate: (
            add(multiply(row[rate], row["seconds"]) for row in alike),
            add(row["seconds"] for row in alike if row[rate] is not None),
        )
        for rate in MEAN_RATES
    }
    by_s = None if covered >= COVERED else _find_time(sums, present_s, published)
    means = {
        f"mean_{rate}": divide(amount, measured_s if by_s is None else by_s)
        for rate, (amount, measured_s) in sums.items()
    }
    return {"covered": covered} | means


def _find_time(
    sums: Mapping[str, tuple[float | None, float | None]],
    present_s: float | None,
    published: Mapping[str, Numbers],
) -> float | None:
    """Seconds that the measured records of a job are of, of which much was not measured: all the
    time since it was first seen if it paused meanwhile, as it caught up with what had waited; the
    measured time if it ran on unseen and its counters were reset before the next sample.

    The numbers that it publishes at the broker outlast both. Those of its input tell which it was,
    else those of its output; without them it paused.
    """
    for rate, (records_per_s, counted_s) in published.items():
        amount, measured_s = sums[rate]
        told_s = divide(amount, records_per_s)
        is_whole = present_s is not None and counted_s >= COVERED * present_s
        if is_whole and told_s is not None and measured_s is not None and present_s is not None:
            return min(present_s, max(measured_s, told_s))
    return present_s
