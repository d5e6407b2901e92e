"""Judges the evidence of jobs: why it is insufficient for a rate or a cost, and how sure a cost is.
Pure.

Jobs are rows as `features.describe_jobs` makes them, with what is known of each so far.
"""

from __future__ import annotations

from collections.abc import Iterator

from speck.analyzer.rates import MIN_BUSY_S
from speck.model.values import JsonObject
from speck.placement.sentences import MEDIUM_OVERLOAD, MEDIUM_SPREAD

MIN_PAIRS = 3
LEAST_COVERED = 0.5
"""Minimum share of the time since a job was first seen in the window in which it was measured."""
MIN_RECORDS = 20
MIN_WORKED = 0.02
"""Minimum share of busy time in busy and back-pressured time. The busy time of a job that is
back-pressured nearly always is within the error of the engine's clocks."""
MAX_SPREAD = 1.0
HIGH_SPREAD = 0.1
HIGH_OVERLOAD = 0.05
"""Up to these the confidence in a cost may be high; more overload is remarked."""


def list_rate_objections(job: JsonObject) -> Iterator[str]:
    """Reasons why the evidence is insufficient for rates."""
    if job["most_pairs"] < MIN_PAIRS:
        yield f"{job['most_pairs']} usable pairs of samples"
    if job["in_rate"] is None:
        yield "input records are not reported"
    if job["covered"] < LEAST_COVERED:
        yield f"measured for {job['covered'] * 100:.0f} % of the time since it was first seen"


def list_cost_objections(job: JsonObject) -> Iterator[str]:
    """Reasons why the evidence is insufficient for a cost, besides those for rates."""
    in_rate, seconds, spread = job["in_rate"], job["seconds"], job["spread"]
    if in_rate is not None and seconds is not None and in_rate * seconds < MIN_RECORDS:
        yield f"only {in_rate * seconds:.0f} input records"
    busy, busy_s = job["busy"], job["busy_s"]
    if busy is None and job["pairs"] > 0:
        yield "busy time is not reported"
    if busy is not None and busy_s is not None and busy_s < MIN_BUSY_S:
        yield f"busy for {busy_s:.2f} s, less than 1 s"
    worked = (busy or 0.0) + (job["back_pressured"] or 0.0)
    if busy is not None and worked > 0 and busy / worked < MIN_WORKED:
        yield f"back-pressured for {(job['back_pressured'] or 0.0) * 100:.0f} % of the time"
    if spread is not None and spread > MAX_SPREAD:
        yield f"its cost varies by {spread * 100:.0f} % over the window"


def list_remarks(job: JsonObject) -> Iterator[str]:
    """What else a reader of the figures should know."""
    if job["ended"]:
        yield "is no longer running"
    if job["is_held"]:
        yield "has a backlog that it does not reduce: its observed rate counts"
    if job["lower_bound"]:
        yield "the true rate is a lower bound: busy time is not reported"
    contended = job["contended_share"] or 0.0
    if contended > HIGH_OVERLOAD:
        share = "all the time" if contended >= 0.995 else f"{contended * 100:.0f} % of the time"
        yield f"the machine was overloaded {share}"
    if job["cpu_share"] < 0.95:
        yield f"it had a core for {job['cpu_share'] * 100:.0f} % of its busy time"
    if job["core_speed"] is None:
        yield "its site is not calibrated: it is assumed as fast as the reference"


def rate_confidence(job: JsonObject) -> str:
    """How sure the cost of a job is: `high`, `medium` or `low`."""
    spread, slices = job["spread"], job["spread_slices"] or 0
    contended = job["contended_share"] or 0.0
    if not job["is_sufficient"] or spread is None:
        return "low"
    is_timed = job["cpu"] is not None or job["cpu_share"] >= 0.95
    is_known = is_timed and job["core_speed"] is not None and (job["busy_s"] or 0.0) >= 5
    if slices >= 5 and spread <= HIGH_SPREAD and contended <= HIGH_OVERLOAD and is_known:
        return "high"
    is_medium = slices >= 3 and spread <= MEDIUM_SPREAD and contended <= MEDIUM_OVERLOAD
    return "medium" if is_medium else "low"
