"""Describes jobs: their rates and costs, the evidence, and whether it is sufficient.

Formulas: the true processing rate as in DS2 (Kalavri et al., OSDI 2018): records over useful time,
which excludes waiting for input and for room in the output. A job of several tasks is limited by
its slowest task, and by the cores of its site for all tasks together.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract
from speck.analyzer.memory import STATE_FACTOR, SUBTASK_BYTES
from speck.analyzer.rates import (
    JOBS_RATED,
    MIN_BUSY_S,
    SUBTASK_RATES,
    TRUE_OUTPUT,
    divide_by_busy_time,
)
from speck.analyzer.sites import SITES_LOADED, SITES_USED
from speck.analyzer.state import JOBS_WIRED

MIN_PAIRS = 3
MIN_RECORDS = 20
MIN_WORKED = 0.02
"""Minimum share of busy time in busy and back-pressured time. The busy time of a job that is
back-pressured nearly always is within the error of the engine's clocks."""
MAX_SPREAD = 1.0
BACKLOG_S = 30.0
HELD_BACK = 1.15
"""The Flink autoscaler's rule: with a backlog, a source's observed rate counts if the rate by busy
time exceeds it by this factor."""
MOSTLY = 0.9
ENDED_S = 30.0
"""A job has ended if it had no samples for this long, and for 4 of its usual intervals, while its
site was polled."""

LAGS = Contract(
    "lags",
    {"composition": "string", "job_name": "string", "lag": "bigint"},
)

JOBS = Contract(
    "jobs",
    {
        "job_name": "string",
        "composition": "string",
        "site": "string",
        "tier": "string",
        "engine_job_id": "string",  # the incarnation that represents the job
        "attempt": "int",
        "ended": "boolean",  # it was not running at the end of the window
        "evidence": "string",
        "why": "array<string>",
        "confidence": "string",
        "seconds": "double",
        "samples": "bigint",
        "in_rate": "double",
        "out_rate": "double",
        "selectivity": "double",
        "core_s_per_record": "double",
        "reference_core_s_per_record": "double",
        "true_processing_rate": "double",
        "true_output_rate": "double",
        TRUE_OUTPUT: "double",  # out_rate by busy seconds per second, as flink-placement has it
        "tasks": SUBTASK_RATES,
        "utilisation": "double",
        "back_pressured": "double",
        "lower_bound": "boolean",
        "contended": "double",
        "bytes_in_rate": "double",
        "bytes_out_rate": "double",
        "bytes_in_per_record": "double",
        "bytes_out_per_record": "double",
        "restarts": "int",
        "stateful": "boolean",
        "state_why": "string",
        "state_bytes": "bigint",
        "state_bytes_per_s": "double",  # its growth; 0: it does not grow; null: unknown
        "heap_bytes": "double",  # of its subtasks and its state
        "heap_bytes_per_s": "double",  # its growth with the state
        "checkpoint_s": "double",
        "subtasks": "int",
        "spread": "double",
        "pinned": "boolean",
        "source_site": "string",
        "source_topic": "string",
        "sink_site": "string",
        "sink_topic": "string",
    },
)


def describe_jobs(
    rated: DataFrame, wired: DataFrame, sites: DataFrame, lags: DataFrame
) -> DataFrame:
    """JOBS_RATED (one incarnation a job), JOBS_WIRED, SITES_USED and LAGS -> JOBS."""
    step = "describe jobs"
    places = SITES_USED.select(sites, step).select(
        "site",
        "tier",
        "cores",
        "pace",
        F.col("cpu").alias("_cpu"),
        F.col("busy").alias("_site_busy"),
        F.col("last_at").alias("_looked_at"),
        F.col("heap_bytes_per_subtask").alias("_heap_per_subtask"),
        F.col("heap_per_state_byte").alias("_heap_per_state_byte"),
    )
    frame = (
        JOBS_RATED.select(rated, step)
        .join(JOBS_WIRED.select(wired, step), "engine_job_id", "left")
        .join(F.broadcast(places), "site", "left")
        .join(LAGS.select(lags, step), ["composition", "job_name"], "left")
    )
    frame = frame.withColumn("_cpu_share", _compute_cpu_share()).withColumn("ended", _has_ended())
    frame = frame.withColumn("_refused", F.array_compact(F.array(*_list_objections())))
    is_sufficient = F.size("_refused") == 0
    cpu_used = F.coalesce("cpu", F.col("busy") * F.col("_cpu_share"))
    cost = cpu_used / F.col("in_rate")
    frame = frame.withColumns(
        {
            "evidence": F.when(is_sufficient, "sufficient").otherwise("insufficient"),
            "selectivity": _divide("out_rate", "in_rate"),
            "core_s_per_record": F.when(is_sufficient, cost),
            "bytes_in_per_record": _divide("bytes_in_rate", "in_rate"),
            "bytes_out_per_record": _divide("bytes_out_rate", "out_rate"),
            "_observed": _compute_observed_rate(),
        }
    )
    frame = frame.withColumn("_by_busy", _compute_rate_by_busy_time())
    frame = frame.withColumn("_held", _is_held_back())
    frame = frame.withColumn("true_processing_rate", _choose_true_rate())
    frame = frame.withColumns(
        {
            "reference_core_s_per_record": F.col("core_s_per_record")
            * F.coalesce("pace", F.lit(1.0)),
            "true_output_rate": F.col("true_processing_rate") * F.col("selectivity"),
            TRUE_OUTPUT: divide_by_busy_time(F.col("out_rate"), F.col("busy")),
            "lower_bound": _is_lower_bound(),
            "utilisation": F.col("busiest"),
            "contended": F.col("contended_share"),
            "samples": F.col("rows") - F.col("duplicates"),
            "tasks": F.col("rates"),
            "state_bytes": F.col("checkpoint_bytes"),
            "heap_bytes": _estimate_heap(),
            "heap_bytes_per_s": F.col("state_bytes_per_s") * _factor_of_state(),
            "checkpoint_s": F.col("checkpoint_ms") / 1000.0,
            "why": F.concat("_refused", F.array_compact(F.array(*_list_remarks()))),
            "confidence": _choose_confidence(),
            "pinned": F.coalesce("pinned", F.lit(False)),
        }
    )
    return JOBS.select(frame, step)


def _estimate_heap() -> Column:
    of_subtask = F.coalesce("_heap_per_subtask", F.lit(float(SUBTASK_BYTES)))
    of_state = F.coalesce("checkpoint_bytes", F.lit(0)) * _factor_of_state()
    return F.col("subtasks") * of_subtask + of_state


def _factor_of_state() -> Column:
    return F.coalesce("_heap_per_state_byte", F.lit(STATE_FACTOR))


def add_loads(sites: DataFrame, jobs: DataFrame) -> DataFrame:
    """SITES_USED and JOBS of all compositions -> SITES_LOADED."""
    work = F.col("reference_core_s_per_record") * F.col("in_rate")
    running = JOBS.select(jobs, "add sites' loads").where("not ended")
    of_site = running.groupBy("site").agg(F.sum(work).alias("load"))
    frame = SITES_USED.select(sites, "add sites' loads").join(of_site, "site", "left")
    frame = frame.withColumn("load", F.coalesce("load", F.lit(0.0)))
    return SITES_LOADED.select(frame, "add sites' loads")


def _has_ended() -> Column:
    unseen_s = (F.unix_micros("_looked_at") - F.unix_micros("last_at")) / 1e6
    usual_s = F.coalesce(F.col("clock_s") / F.col("pairs"), F.lit(0.0))
    return F.coalesce(unseen_s > F.greatest(F.lit(ENDED_S), 4 * usual_s), F.lit(False))


def _divide(over: str, under: str) -> Column:
    return F.when(F.col(under) > 0, F.col(over) / F.col(under))


def _compute_cpu_share() -> Column:
    """The share of busy wall time in which the job had a core.

    If CPU time is reported, that decides. The exception is a low share at a site with enough whole
    cores: such a job waits for something else, like a response from outside, and would at full
    load, too. Otherwise, if a site's tasks are busy for more than half of its cores, a quota or
    other programs make them wait, and busy time overestimates the work; then the share follows from
    the CPU time of the engine's processes.
    """
    has_cpu_time = (F.col("busy") > 0) & F.col("cpu").isNotNull()  # least() ignores nulls
    own = F.when(has_cpu_time, F.least(F.lit(1.0), F.col("cpu") / F.col("busy")))
    for_a_core = (own >= 0.5) | (F.col("cores") < F.col("subtasks"))
    crowded = (F.col("_site_busy") > 0.5 * F.col("cores")) & (F.col("_cpu") > 0)
    share = F.least(F.lit(1.0), F.col("_cpu") / F.col("_site_busy"))
    without = F.when(crowded, share).otherwise(F.lit(1.0))
    with_own = F.when(F.coalesce(for_a_core, F.lit(False)), own).otherwise(F.lit(1.0))
    return F.when(own.isNotNull(), with_own).otherwise(without)


def _list_objections() -> list[Column]:
    """Reasons why the evidence is insufficient for a cost; nulls for those that do not apply."""
    busy, back = F.col("busy"), F.coalesce("back_pressured", F.lit(0.0))
    records = F.col("in_rate") * F.col("seconds")
    return [
        F.when(
            F.col("most_pairs") < MIN_PAIRS,
            F.format_string("%d usable pairs of samples", "most_pairs"),
        ),
        F.when(F.col("in_rate").isNull(), "input records are not reported"),
        F.when(records < MIN_RECORDS, F.format_string("only %.0f input records", records)),
        F.when(busy.isNull() & (F.col("pairs") > 0), "busy time is not reported"),
        F.when(
            busy.isNotNull() & (F.col("busy_s") < MIN_BUSY_S),
            F.format_string("busy for %.2f s, less than 1 s", "busy_s"),
        ),
        F.when(
            busy / (busy + back) < MIN_WORKED,
            F.format_string("back-pressured for %.0f %% of the time", back * 100),
        ),
        F.when(
            F.col("spread") > MAX_SPREAD,
            F.format_string("its cost varies by %.0f %% over the window", F.col("spread") * 100),
        ),
    ]


def _compute_observed_rate() -> Column:
    free = 1 - F.coalesce("back_pressured", F.lit(0.0))
    return F.when(free > 1 - MOSTLY, F.col("in_rate") / free)


def _compute_rate_by_busy_time() -> Column:
    """Records per second at full load of the slowest task's subtasks, or of the site's cores.

    A subtask is one thread, so it uses one core at most; all subtasks share the site's cores.
    """
    of_tasks = F.col("in_rate") / (F.col("busiest") * F.col("_cpu_share"))
    of_cores = F.col("cores") / F.col("core_s_per_record")
    return F.when(F.col("evidence") == "sufficient", F.least(of_tasks, of_cores))


def _is_held_back() -> Column:
    backlog = F.col("lag") > BACKLOG_S * F.col("in_rate")
    is_held = backlog & (F.col("_by_busy") > HELD_BACK * F.col("_observed"))
    return F.coalesce(is_held, F.lit(False))


def _choose_true_rate() -> Column:
    no_busy = F.col("busy").isNull() & (F.col("most_pairs") >= MIN_PAIRS)
    return (
        F.when(F.col("_held"), F.col("_observed"))
        .when(F.col("evidence") == "sufficient", F.col("_by_busy"))
        .when(no_busy & F.col("back_pressured").isNotNull(), F.col("_observed"))
    )


def _is_lower_bound() -> Column:
    return F.col("busy").isNull() & F.col("true_processing_rate").isNotNull()


def _list_remarks() -> list[Column]:
    share = F.col("_cpu_share")
    return [
        F.when(F.col("ended"), "is no longer running"),
        F.when(F.col("_held"), "has a backlog that it does not reduce: its observed rate counts"),
        F.when(_is_lower_bound(), "the true rate is a lower bound: busy time is not reported"),
        F.when(
            F.col("contended_share") > 0.05,
            F.format_string(
                "the machine was contended for %.0f %% of its time", F.col("contended_share") * 100
            ),
        ),
        F.when(
            share < 0.95,
            F.format_string("it had a core for %.0f %% of its busy time", share * 100),
        ),
        F.when(
            F.col("pace").isNull(),
            "its site is not calibrated: it is assumed as fast as the reference",
        ),
    ]


def _choose_confidence() -> Column:
    spread, contended = F.col("spread"), F.coalesce("contended_share", F.lit(0.0))
    is_steady = (F.col("spread_slices") >= 5) & (spread <= 0.1) & (contended <= 0.05)
    is_fair = (F.col("spread_slices") >= 3) & (spread <= 0.3) & (contended <= 0.3)
    is_sufficient = F.col("evidence") == "sufficient"
    has_cpu_time = F.col("cpu").isNotNull() | (F.col("_cpu_share") >= 0.95)
    is_sure = has_cpu_time & F.col("pace").isNotNull() & (F.col("busy_s") >= 5)
    return (
        F.when(is_sufficient & is_steady & is_sure, "high")
        .when(is_sufficient & is_fair, "medium")
        .otherwise("low")
    )
