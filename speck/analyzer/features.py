"""Describes jobs: their rates and costs, the evidence, and whether it is sufficient.

Formulas: the true processing rate as in DS2 (Kalavri et al., OSDI 2018): records over useful time,
which excludes waiting for input and for room in the output. A job of several tasks is limited by
its slowest task, and by the cores of its site for all tasks together.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from speck.analyzer.contracts import Contract
from speck.analyzer.incarnations import JOBS_CHOSEN, MEAN_RATES
from speck.analyzer.memory import STATE_FACTOR
from speck.analyzer.rates import (
    MIN_BUSY_S,
    SUBTASK_RATES,
    TRUE_OUTPUT,
    divide_by_busy_time,
)
from speck.analyzer.sites import SITES_USED
from speck.analyzer.state import IS_STATEFUL, PLANS_WIRED, STATE_WHY
from speck.placement.instance import MEMORY_BYTES

MIN_PAIRS = 3
LEAST_COVERED = 0.5
"""Minimum share of the time since a job was first seen in the window in which it was measured."""
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
        "rate_evidence": "string",  # for its rates; `evidence` is for its cost as well
        "rate_why": "array<string>",
        "confidence": "string",
        "seconds": "double",
        "covered": "double",  # share of the time since it was first seen that was measured
        "samples": "bigint",
        "in_rate": "double",
        "out_rate": "double",
        "selectivity": "double",
        "core_s_per_record": "double",
        "reference_core_s_per_record": "double",
        "reference_cores": "double",  # reference core-seconds a second
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
        "source_is_input": "boolean",
    },
)


def describe_jobs(
    rated: DataFrame, plans: DataFrame, sites: DataFrame, lags: DataFrame
) -> DataFrame:
    """JOBS_CHOSEN, PLANS_WIRED, SITES_USED and LAGS -> JOBS. Costs and all other figures of a
    record are of the incarnation that represents the job; its rates are the means."""
    step = "describe jobs"
    return JOBS.query(
        step,
        f"""
        WITH joined AS (
          SELECT rated.*, {IS_STATEFUL} AS stateful, {STATE_WHY} AS state_why,
            coalesce(pinned, false) AS pinned,
            source_site, source_topic, sink_site, sink_topic,
            coalesce(source_is_input, false) AS source_is_input,
            tier, cores, pace, site_cpu, site_busy, polled_at, lag,
            coalesce(heap_bytes_per_subtask, {MEMORY_BYTES}D) AS subtask_bytes,
            coalesce(heap_per_state_byte, {STATE_FACTOR}D) AS state_factor
          FROM {{rated}} AS rated
          LEFT JOIN (SELECT * EXCEPT (composition, job_name, at) FROM {{plans}})
            USING (engine_job_id)
          LEFT JOIN (
            SELECT site, tier, cores, pace, cpu AS site_cpu, busy AS site_busy,
              last_at AS polled_at, heap_bytes_per_subtask, heap_per_state_byte
            FROM {{sites}}
          ) USING (site)
          LEFT JOIN {{lags}} USING (composition, job_name)
        ),
        own AS (
          SELECT *, {_HAS_ENDED} AS ended,
            -- least() ignores nulls
            CASE WHEN busy > 0 AND cpu IS NOT NULL THEN least(1D, cpu / busy) END AS own_share
          FROM joined
        ),
        shared AS (SELECT *, {_CPU_SHARE} AS cpu_share FROM own),
        judged AS (
          SELECT *, {list_of(_RATE_OBJECTIONS)} AS rate_why, {list_of(_OBJECTIONS)} AS objections
          FROM shared
        ),
        costed AS (
          SELECT *,
            CASE WHEN size(objections) = 0 THEN 'sufficient' ELSE 'insufficient' END AS evidence,
            CASE WHEN size(rate_why) = 0 THEN 'sufficient' ELSE 'insufficient' END
              AS rate_evidence,
            CASE WHEN size(rate_why) = 0 THEN coalesce(cpu, busy * cpu_share) END AS cores_used,
            CASE WHEN in_rate > 0 THEN out_rate / in_rate END AS selectivity,
            CASE WHEN size(objections) = 0 THEN coalesce(cpu, busy * cpu_share) / in_rate END
              AS core_s_per_record,
            CASE WHEN in_rate > 0 THEN bytes_in_rate / in_rate END AS bytes_in_per_record,
            CASE WHEN out_rate > 0 THEN bytes_out_rate / out_rate END AS bytes_out_per_record,
            CASE WHEN 1D - coalesce(back_pressured, 0D) > 1D - {MOSTLY}D
              THEN in_rate / (1D - coalesce(back_pressured, 0D)) END AS observed
          FROM judged
        ),
        limited AS (SELECT *, {_RATE_BY_BUSY_TIME} AS by_busy FROM costed),
        held AS (
          SELECT *,
            coalesce(lag > {BACKLOG_S} * in_rate AND by_busy > {HELD_BACK} * observed, false)
              AS is_held
          FROM limited
        ),
        described AS (
          SELECT *,
            CASE
              WHEN is_held THEN observed
              WHEN evidence = 'sufficient' THEN by_busy
              WHEN busy IS NULL AND most_pairs >= {MIN_PAIRS} AND back_pressured IS NOT NULL
                THEN observed
            END AS true_processing_rate
          FROM held
        ),
        bounded AS (
          SELECT *, busy IS NULL AND true_processing_rate IS NOT NULL AS lower_bound
          FROM described
        )
        SELECT *,
          core_s_per_record * coalesce(pace, 1D) AS reference_core_s_per_record,
          cores_used * coalesce(pace, 1D) AS reference_cores,
          true_processing_rate * selectivity AS true_output_rate,
          {divide_by_busy_time("own_out_rate", "busy")} AS {TRUE_OUTPUT},
          rates AS tasks,
          subtasks * subtask_bytes + coalesce(checkpoint_bytes, 0L) * state_factor AS heap_bytes,
          state_bytes_per_s * state_factor AS heap_bytes_per_s,
          busiest AS utilisation,
          contended_share AS contended,
          rows - duplicates AS samples,
          checkpoint_bytes AS state_bytes,
          checkpoint_ms / 1000D AS checkpoint_s,
          concat(objections, {list_of(_REMARKS)}) AS why,
          {_CONFIDENCE} AS confidence
        FROM (
          SELECT * EXCEPT (contended, {", ".join(MEAN_RATES)}),
            {", ".join(f"mean_{rate} AS {rate}" for rate in MEAN_RATES)},
            out_rate AS own_out_rate
          FROM bounded)
        """,
        rated=JOBS_CHOSEN.check(rated, step),
        plans=PLANS_WIRED.check(plans, step),
        sites=SITES_USED.check(sites, step),
        lags=LAGS.check(lags, step),
    )


def list_of(conditions: Mapping[str, str]) -> str:
    """An array of the sentences whose condition holds."""
    cases = (f"CASE WHEN {condition} THEN {text} END" for condition, text in conditions.items())
    return f"array_compact(array({', '.join(cases)}))"


_HAS_ENDED = f"""
    coalesce(
      (unix_micros(polled_at) - unix_micros(last_at)) / 1e6D
        > greatest({ENDED_S}D, 4 * coalesce(clock_s / pairs, 0D)),
      false)"""

_CPU_SHARE = """
    CASE
      WHEN own_share IS NOT NULL THEN
        CASE WHEN coalesce(own_share >= 0.5D OR cores < subtasks, false)
          THEN own_share ELSE 1D END
      WHEN site_busy > 0.5D * cores AND site_cpu > 0 THEN least(1D, site_cpu / site_busy)
      ELSE 1D
    END"""
"""The share of busy wall time in which the job had a core.

If CPU time is reported (`own_share`), that decides. The exception is a low share at a site with
enough whole cores: such a job waits for something else, like a response from outside, and would at
full load, too. Otherwise, if a site's tasks are busy for more than half of its cores, a quota or
other programs make them wait, and busy time overestimates the work; then the share follows from the
CPU time of the engine's processes."""

_RATE_OBJECTIONS = {
    f"most_pairs < {MIN_PAIRS}": "format_string('%d usable pairs of samples', most_pairs)",
    "in_rate IS NULL": "'input records are not reported'",
    f"covered < {LEAST_COVERED}D": (
        "format_string('measured for %.0f %% of the time since it was first seen', covered * 100)"
    ),
}
"""Reasons why the evidence is insufficient for rates."""

_OBJECTIONS = _RATE_OBJECTIONS | {
    f"in_rate * seconds < {MIN_RECORDS}": (
        "format_string('only %.0f input records', in_rate * seconds)"
    ),
    "busy IS NULL AND pairs > 0": "'busy time is not reported'",
    f"busy IS NOT NULL AND busy_s < {MIN_BUSY_S}": (
        "format_string('busy for %.2f s, less than 1 s', busy_s)"
    ),
    f"busy / (busy + coalesce(back_pressured, 0D)) < {MIN_WORKED}": (
        "format_string('back-pressured for %.0f %% of the time', back_pressured * 100)"
    ),
    f"spread > {MAX_SPREAD}": (
        "format_string('its cost varies by %.0f %% over the window', spread * 100)"
    ),
}
"""Reasons why the evidence is insufficient for a cost."""

_RATE_BY_BUSY_TIME = """
    CASE WHEN evidence = 'sufficient' THEN least(
      in_rate / (busiest * cpu_share),
      cores / core_s_per_record) END"""
"""Records per second at full load of the slowest task's subtasks, or of the site's cores.

A subtask is one thread, so it uses one core at most; all subtasks share the site's cores."""

_REMARKS = {
    "ended": "'is no longer running'",
    "is_held": "'has a backlog that it does not reduce: its observed rate counts'",
    "lower_bound": "'the true rate is a lower bound: busy time is not reported'",
    "contended_share > 0.05D": """
        CASE WHEN contended_share >= 0.995D THEN 'the machine was overloaded all the time'
          ELSE format_string('the machine was overloaded %.0f %% of the time',
            contended_share * 100) END""",
    "cpu_share < 0.95D": (
        "format_string('it had a core for %.0f %% of its busy time', cpu_share * 100)"
    ),
    "pace IS NULL": "'its site is not calibrated: it is assumed as fast as the reference'",
}

_CONFIDENCE = """
    CASE
      WHEN evidence = 'sufficient'
        AND spread_slices >= 5 AND spread <= 0.1D AND coalesce(contended_share, 0D) <= 0.05D
        AND (cpu IS NOT NULL OR cpu_share >= 0.95D) AND pace IS NOT NULL AND busy_s >= 5
        THEN 'high'
      WHEN evidence = 'sufficient'
        AND spread_slices >= 3 AND spread <= 0.3D AND coalesce(contended_share, 0D) <= 0.3D
        THEN 'medium'
      ELSE 'low'
    END"""
