"""Chooses the incarnation that represents each job, and averages the rates of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

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
    rated: Iterable[JsonObject], plans: Mapping[str, JsonObject]
) -> list[JsonObject]:
    """The incarnation that represents each job, of those of `rates.rate_jobs`; wires of plans by
    incarnation.

    That is the newest one. While it has too few samples for a cost, it is the newest one at the
    same site that has a cost. After `TRUSTED_AFTER_S` the newest one counts however little it did,
    since an older one may have been another program. `last_at` is that of the job, of any
    incarnation.

    Its `mean_<rate>` are of all incarnations that read and write the same topics: records (or
    bytes) of the window by the time since the job was first seen. So a pause does not inflate them,
    as what a job catches up with after it does its newest incarnation's rates. `covered`: the share
    (0 to 1) of that time that was measured.
    """
    jobs = group(rated, ("composition", "job_name"))
    return [_choose(incarnations, plans) for incarnations in jobs]


def _choose(incarnations: Sequence[JsonObject], plans: Mapping[str, JsonObject]) -> JsonObject:
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
    return {**chosen, **_average(alike), "last_at": newest_at}


def _topics_of(row: JsonObject, plans: Mapping[str, JsonObject]) -> tuple[Any, Any]:
    plan = plans.get(row["engine_job_id"], {})
    return plan.get("source_topic"), plan.get("sink_topic")


def _average(alike: Sequence[JsonObject]) -> JsonObject:
    """Rates over the time since the job was first seen; over the measured time if that is nearly
    all of it."""
    first_at = pick_least(row["first_at"] for row in alike)
    last_at = pick_most(row["last_at"] for row in alike)
    present_s = None if first_at is None else (last_at - first_at).total_seconds()
    share = divide(add(row["seconds"] for row in alike), present_s)
    covered = 1.0 if share is None else min(1.0, share)
    means = {}
    for rate in MEAN_RATES:
        amount = add(multiply(row[rate], row["seconds"]) for row in alike)
        measured_s = add(row["seconds"] for row in alike if row[rate] is not None)
        by = measured_s if covered >= COVERED else present_s
        is_one = covered >= COVERED and len(alike) == 1
        means[f"mean_{rate}"] = alike[0][rate] if is_one else divide(amount, by)
    return {**means, "covered": covered}
