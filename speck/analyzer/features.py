"""Describes jobs: their rates and costs, and whether the evidence for these is sufficient. Pure.

Formulas: the true processing rate as in DS2 (Kalavri et al., OSDI 2018): records over useful time,
which excludes waiting for input and for room in the output. A job of several tasks is limited by
its slowest task, and by the cores of its site for all tasks together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from speck.analyzer.incarnations import MEAN_RATES
from speck.analyzer.job_evidence import (
    MIN_PAIRS,
    list_cost_objections,
    list_rate_objections,
    list_remarks,
    rate_confidence,
)
from speck.analyzer.memory import STATE_FACTOR
from speck.analyzer.rates import TRUE_OUTPUT, divide_by_busy_time
from speck.analyzer.state import judge_state
from speck.analyzer.unknowns import divide, multiply, pick_least
from speck.model.values import JsonObject
from speck.placement.evidence import INSUFFICIENT, SUFFICIENT
from speck.placement.instance import MEMORY_BYTES

BACKLOG_S = 30.0
HELD_BACK = 1.15
"""The Flink autoscaler's rule: with a backlog, a source's observed rate counts if the rate by busy
time exceeds it by this factor."""
MOSTLY = 0.9
"""A job that is back-pressured for this share of the time shows no rate of its own."""
ENDED_S = 30.0
"""A job has ended if it had no samples for this long, and for 4 of its usual intervals, while its
site was polled."""

JOB_FIELDS = (
    "job_name",
    "composition",
    "site",
    "tier",
    "engine_job_id",  # the incarnation that represents the job
    "attempt",
    "ended",  # it was not running at the end of the window
    "evidence",
    "why",
    "rate_evidence",  # for its rates; `evidence` is for its cost as well
    "rate_why",
    "confidence",
    "seconds",
    "covered",  # share of the time since it was first seen that was measured
    "samples",
    "in_rate",
    "out_rate",
    "selectivity",
    "core_s_per_record",
    "reference_core_s_per_record",
    "reference_cores",  # reference core-seconds a second
    "true_processing_rate",
    "true_output_rate",
    TRUE_OUTPUT,  # out_rate by busy seconds per second, as flink-placement has it
    "tasks",
    "utilisation",
    "back_pressured",
    "lower_bound",
    "contended",
    "bytes_in_rate",
    "bytes_out_rate",
    "bytes_in_per_record",
    "bytes_out_per_record",
    "restarts",
    "stateful",
    "state_why",
    "state_bytes",
    "state_bytes_per_s",  # its growth; 0: it does not grow; null: unknown
    "heap_bytes",  # of its subtasks and its state
    "heap_bytes_per_s",  # its growth with the state
    "checkpoint_s",
    "subtasks",
    "spread",
    "pinned",
    "source_site",
    "source_topic",
    "sink_site",
    "sink_topic",
    "source_is_input",
)

_ENDS = ("source_site", "source_topic", "sink_site", "sink_topic")


def describe_jobs(
    chosen: Iterable[JsonObject],
    plans: Mapping[str, JsonObject],
    sites: Iterable[JsonObject],
    lags: Mapping[tuple[str | None, str], int | None],
) -> list[JsonObject]:
    """Jobs by `incarnations.choose_incarnations`, wires of plans by incarnation, sites as
    `sites.add_use` makes them, and lags by job -> JOB_FIELDS of each job. Costs and all other
    figures of a record are of the incarnation that represents the job; its rates are the means."""
    by_name = {site["site"]: site for site in sites}
    return [
        _describe(
            job,
            plans.get(job["engine_job_id"]),
            by_name.get(job["site"], {}),
            lags.get((job["composition"], job["job_name"])),
        )
        for job in chosen
    ]


def _describe(
    job: JsonObject, plan: JsonObject | None, site: JsonObject, lag: int | None
) -> JsonObject:
    core_speed = site.get("core_speed")
    job = {**job, "core_speed": core_speed, "ended": _has_ended(job, site.get("last_at"))}
    job |= {"tier": site.get("tier"), **_describe_state(job, plan, site)}
    job |= _describe_cost(job, site)
    job |= _describe_limit(job, site, lag)
    speed = 1.0 if core_speed is None else core_speed
    out_rate = job["out_rate"]
    named = {
        **job,
        **{rate: job[f"mean_{rate}"] for rate in MEAN_RATES},
        "reference_core_s_per_record": multiply(job["core_s_per_record"], speed),
        "reference_cores": multiply(job["cores_used"], speed),
        "true_output_rate": multiply(job["true_processing_rate"], job["selectivity"]),
        TRUE_OUTPUT: divide_by_busy_time(out_rate, job["busy"], job["busy_s"]),
        "tasks": job["rates"],
        "utilisation": job["busiest"],
        "contended": job["contended_share"],
        "samples": job["rows"] - job["duplicates"],
        "why": [*job["objections"], *list_remarks(job)],
        "confidence": rate_confidence(job),
    }
    return {name: named[name] for name in JOB_FIELDS}


def _has_ended(job: JsonObject, polled_at: datetime | None) -> bool:
    if polled_at is None or job["last_at"] is None:
        return False
    usual_s = divide(job["clock_s"], job["pairs"]) or 0.0
    return bool((polled_at - job["last_at"]).total_seconds() > max(ENDED_S, 4 * usual_s))


def _describe_state(job: JsonObject, plan: JsonObject | None, site: JsonObject) -> JsonObject:
    size, growth, wires = job["checkpoint_bytes"], job["state_bytes_per_s"], plan or {}
    stateful, why = judge_state(plan, size)
    of_subtask = site.get("heap_bytes_per_subtask")
    factor = site.get("heap_per_state_byte", STATE_FACTOR)
    heap = multiply(job["subtasks"], MEMORY_BYTES if of_subtask is None else of_subtask)
    return {
        "stateful": stateful,
        "state_why": why,
        "state_bytes": size,
        "heap_bytes": None if heap is None else heap + (size or 0) * factor,
        "heap_bytes_per_s": multiply(growth, factor),
        "checkpoint_s": divide(job["checkpoint_ms"], 1000),
        "pinned": wires.get("pinned", False),
        "source_is_input": wires.get("source_is_input", False),
        **{name: wires.get(name) for name in _ENDS},
    }


def _describe_cost(job: JsonObject, site: JsonObject) -> JsonObject:
    """The evidence, and the cost of a record if that is sufficient."""
    in_rate, out_rate, share = job["in_rate"], job["out_rate"], _share_core(job, site)
    doubts = list(list_rate_objections(job))
    objections = [*doubts, *list_cost_objections(job)]
    cores = job["cpu"] if job["cpu"] is not None else multiply(job["busy"], share)
    return {
        "rate_why": doubts,
        "rate_evidence": INSUFFICIENT if doubts else SUFFICIENT,
        "objections": objections,
        "is_sufficient": not objections,
        "evidence": INSUFFICIENT if objections else SUFFICIENT,
        "cpu_share": share,
        "cores_used": None if doubts else cores,
        "core_s_per_record": None if objections else divide(cores, in_rate),
        "selectivity": divide(out_rate, in_rate),
        "bytes_in_per_record": divide(job["bytes_in_rate"], in_rate),
        "bytes_out_per_record": divide(job["bytes_out_rate"], out_rate),
    }


def _share_core(job: JsonObject, site: JsonObject) -> float:
    """The share of busy wall time in which the job had a core.

    If CPU time is reported, that decides. The exception is a low share at a site with enough whole
    cores: such a job waits for something else, like a response from outside, and would at full
    load, too. Otherwise, if a site's tasks are busy for more than half of its cores, a quota or
    other programs make them wait, and busy time overestimates the work; then the share follows from
    the CPU time of the engine's processes.
    """
    cores, site_busy, site_cpu = (site.get(name) for name in ("cores", "busy", "cpu"))
    own = divide(job["cpu"], job["busy"])
    if own is not None:
        is_short = cores is not None and cores < job["subtasks"]
        return min(1.0, own) if own >= 0.5 or is_short else 1.0
    if site_busy is None or cores is None or site_busy <= 0.5 * cores:
        return 1.0
    return min(1.0, site_cpu / site_busy) if site_cpu is not None and site_cpu > 0 else 1.0


def _describe_limit(job: JsonObject, site: JsonObject, lag: int | None) -> JsonObject:
    """The rate of records that the job can process. `by_busy_time` is that of the subtasks of its
    slowest task, or of the site's cores: a subtask is one thread, so it uses one core at most, and
    all subtasks share the site's cores."""
    in_rate, back = job["in_rate"], job["back_pressured"]
    waits = back or 0.0
    observed = divide(in_rate, 1.0 - waits) if 1.0 - waits > 1.0 - MOSTLY else None
    by_task = divide(in_rate, multiply(job["busiest"], job["cpu_share"]))
    by_cores = divide(site.get("cores"), job["core_s_per_record"])
    by_busy_time = pick_least((by_task, by_cores)) if job["is_sufficient"] else None
    is_held = (
        lag is not None
        and observed is not None
        and by_busy_time is not None
        and lag > BACKLOG_S * in_rate
        and by_busy_time > HELD_BACK * observed
    )
    is_silent = job["busy"] is None and job["most_pairs"] >= MIN_PAIRS and back is not None
    limit = observed if is_held or (is_silent and not job["is_sufficient"]) else by_busy_time
    return {
        "is_held": is_held,
        "true_processing_rate": limit,
        "lower_bound": job["busy"] is None and limit is not None,
    }
