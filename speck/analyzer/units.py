"""Rows of the dataset -> sums of units -> what a window adds up to.

A long window has units of ten minutes or of an hour, whose sums are cached: it is analysed without
reading their rows. A short one is summed at once: its subtasks have a unit for each slice of the
window, all else one unit.

The sums of a unit hold all of its rows and nothing of the others'. What a counter grew by between
two units is computed from the last row of one and the first row of the next, which its sums keep
for each subtask, site or end of a link. So the units do not change what a window adds up to, as
long as each is counted in one slice (`slicing.Slicing`). A new epoch of a producer, or a falling
number, means that counting restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from speck.analyzer.clean import IDENTITY, ROW, SERIES, lag_rows, subtract_rows
from speck.analyzer.contracts import Contract, contract_of
from speck.analyzer.ends import END, ENDS
from speck.analyzer.memory import HEAP_BINS, bin_heaps
from speck.analyzer.sites import NEWEST, SITES_POLLED
from speck.analyzer.slicing import unit_of
from speck.analyzer.state import NEWEST_PLANS
from speck.analyzer.sums import MERGED, OF_SUBTASK, SLICED, STRIDE, SUMS, name_all
from speck.metrics.dataset.origins import UNIT_S
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TASKS, Table

TEN_OF_ROW = unit_of("unix_micros(at)", 1)
"""An expression: the ten minutes of a row."""

_COUNTED = {name: kind for name, kind in SLICED.columns.items() if name != "slice"}
_ROW = f"struct<{','.join(f'{name}:{contract_of(TASKS).columns[name]}' for name in ROW)}>"

TASK_UNITS = Contract(
    "units of tasks",
    # of all rows but the first one of the unit; `first` and `last` are in one row of each subtask,
    # `last` is null if it is the first one
    {"unit": "bigint", **_COUNTED, "first": _ROW, "last": _ROW},
)

_NEWEST_OF_SITE = {
    name: f"struct<at:timestamp,{name}:{SITES_POLLED.columns[name]}>" for name in NEWEST
}
_CPU = "struct<at:timestamp,cpu_ms:double>"
SITE_UNITS = Contract(
    "units of sites",
    {"unit": "bigint", "site": "string", **_NEWEST_OF_SITE}
    | {
        "host_cpu_sum": "double",
        "host_cpu_count": "bigint",
        "cpu_s": "double",
        "clock_s": "double",
        "first_at": "timestamp",
        "last_at": "timestamp",
        "first": _CPU,
        "last": _CPU,
        "bins": HEAP_BINS,
    },
)

_COUNT = "struct<at:timestamp,epoch:bigint,messages:bigint>"
_DESCRIBED = ("composition", "job_name", "engine_site")
LINK_UNITS = Contract(
    "units of links",
    {"unit": "bigint", **dict.fromkeys(END, "string")}
    | {name: f"struct<at:timestamp,{name}:string>" for name in _DESCRIBED}
    | {
        "lag": "struct<at:timestamp,lag:bigint>",  # the newest
        "sent": "bigint",
        "sent_s": "double",
        # moments of the lag over time in seconds from the begin of the unit
        "lags": "bigint",
        "mean_s": "double",
        "mean_lag": "double",
        "s_s": "double",
        "s_lag": "double",
        "lag_lag": "double",
        "last_at": "timestamp",
        "first": _COUNT,
        "last": _COUNT,
    },
)


class SumRows(Protocol):
    """Computes units from rows of any time."""

    def __call__(self, rows: DataFrame, unit: str = TEN_OF_ROW) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class UnitTable:
    """The units of one table: `sum_rows` computes them from rows; its second argument is the
    expression of a row's unit."""

    table: Table
    contract: Contract
    sum_rows: SumRows


# -- tasks -------------------------------------------------------------------------------------


def sum_tasks(rows: DataFrame, unit: str = TEN_OF_ROW) -> DataFrame:
    """TASKS rows -> TASK_UNITS."""
    step = "sum up units of tasks"
    row = f"struct({', '.join(ROW)})"
    more = (
        "unit, series",
        f"CASE WHEN kind = 'first' THEN {row} END AS first",
        f"CASE WHEN kind <> 'first' AND is_last THEN {row} END AS last",
    )
    lagged = lag_rows(f"(SELECT *, {unit} AS unit FROM {{rows}})", ["unit"])
    keys = f"series, unit, {OF_SUBTASK}, stride"
    # by the two rows as well, which few have: `max` of structs would sort all rows by group
    return TASK_UNITS.query(
        step,
        f"""
        WITH summed AS (
          SELECT {keys}, first, last, {name_all(SUMS)}
          FROM (
            SELECT *, {STRIDE} AS stride, kind <> 'first' AS is_counted
            FROM ({subtract_rows(f"({lagged})", more)}))
          GROUP BY {keys}, first, last
        )
        SELECT {keys}, {name_all(MERGED)}, max(first) AS first, max(last) AS last
        FROM summed GROUP BY {keys}
        """,
        rows=contract_of(TASKS).check(rows, step),
    )


def slice_tasks(units: DataFrame, slice_of_unit: str) -> DataFrame:
    """TASK_UNITS of a window -> SLICED; an expression gives the slice of a `unit`."""
    step = "sum up slices of units"
    keys = f"{OF_SUBTASK}, slice, stride"
    before = ", ".join(f"before.{name} AS _{name}" for name in ROW)
    bounds = subtract_rows("bounds", ["unit"])
    return SLICED.query(
        step,
        f"""
        WITH ends AS (
          SELECT unit, {IDENTITY}, max(first) AS first, coalesce(max(last), max(first)) AS last
          FROM {{units}} GROUP BY unit, {IDENTITY}
        ),
        chained AS (
          -- a subtask that was rescaled within a unit has its first row before, its last row after
          SELECT *, lag(last) OVER (PARTITION BY {SERIES} ORDER BY unit, first IS NULL) AS before
          FROM ends WHERE last IS NOT NULL
        ),
        bounds AS (SELECT unit, {IDENTITY}, first.*, {before} FROM chained WHERE first IS NOT NULL),
        of_bounds AS (
          SELECT {keys}, {name_all(SUMS)}
          FROM (
            SELECT *, {slice_of_unit} AS slice, {STRIDE} AS stride, true AS is_counted
            FROM ({bounds}))
          GROUP BY {keys}
        ),
        of_units AS (
          SELECT {OF_SUBTASK}, {slice_of_unit} AS slice, stride, {", ".join(SUMS)}
          FROM {{units}} WHERE rows > 0
        )
        SELECT {keys}, {name_all(MERGED)}
        FROM (
          SELECT {keys}, {", ".join(SUMS)} FROM of_bounds
          UNION ALL
          SELECT {keys}, {", ".join(SUMS)} FROM of_units)
        GROUP BY {keys}
        """,
        units=TASK_UNITS.check(units, step),
    )


# -- sites -------------------------------------------------------------------------------------


def sum_sites(rows: DataFrame, unit: str = TEN_OF_ROW) -> DataFrame:
    """SITES rows -> SITE_UNITS."""
    step = "sum up units of sites"
    newest = {
        name: f"max(CASE WHEN {name} IS NOT NULL THEN struct(at, {name}) END)" for name in NEWEST
    }
    return SITE_UNITS.query(
        step,
        f"""
        WITH numbered AS (SELECT *, {unit} AS unit FROM {{rows}}),
        paired AS (
          SELECT *,
            lag(at) OVER polls IS NULL AS is_first,
            lead(at) OVER polls IS NULL AS is_last,
            (cpu_ms - lag(cpu_ms) OVER polls) / 1000D AS cpu_s,
            (unix_micros(at) - unix_micros(lag(at) OVER polls)) / 1e6D AS clock_s
          FROM numbered
          -- by the counter, too: of two rows of one moment, neither must come first by chance
          WINDOW polls AS (PARTITION BY site, unit ORDER BY at, cpu_ms)
        ),
        summed AS (
          SELECT unit, site, {name_all(newest)},
            -- a unit's first row has no clock, and counts; a second one of the same moment does not
            sum(CASE WHEN coalesce(clock_s > 0, true) THEN host_cpu END) AS host_cpu_sum,
            count(CASE WHEN coalesce(clock_s > 0, true) THEN host_cpu END) AS host_cpu_count,
            sum(CASE WHEN cpu_s >= 0 AND clock_s > 0 THEN cpu_s END) AS cpu_s,
            sum(CASE WHEN cpu_s >= 0 AND clock_s > 0 THEN clock_s END) AS clock_s,
            min(at) AS first_at,
            max(at) AS last_at,
            max(CASE WHEN is_first THEN struct(at, cpu_ms) END) AS first,
            max(CASE WHEN is_last THEN struct(at, cpu_ms) END) AS last
          FROM paired GROUP BY unit, site
        )
        SELECT * FROM summed
        LEFT JOIN ({bin_heaps("numbered", "unit, site")}) USING (unit, site)
        """,
        rows=contract_of(SITES).check(rows, step),
    )


def sum_polls(units: DataFrame) -> DataFrame:
    """SITE_UNITS of a window -> SITES_POLLED."""
    step = "sum up polls of units"
    newest = {name: f"max({name}).{name}" for name in NEWEST}
    return SITES_POLLED.query(
        step,
        f"""
        WITH chained AS (
          SELECT *, lag(last) OVER (PARTITION BY site ORDER BY unit) AS before FROM {{units}}
        ),
        bounds AS (
          SELECT *, (first.cpu_ms - before.cpu_ms) / 1000D AS bound_cpu_s,
            (unix_micros(first.at) - unix_micros(before.at)) / 1e6D AS bound_s
          FROM chained
        ),
        judged AS (
          SELECT *, coalesce(bound_cpu_s >= 0 AND bound_s > 0, false) AS is_good FROM bounds
        ),
        polled AS (
          SELECT site, {name_all(newest)},
            sum(host_cpu_sum) / nullif(sum(host_cpu_count), 0) AS host_cpu,
            -- null if no pair at all is good: nothing is known, and 0 would say that it was idle
            sum(CASE WHEN is_good THEN coalesce(cpu_s, 0D) + bound_cpu_s ELSE cpu_s END)
              / sum(CASE WHEN is_good THEN coalesce(clock_s, 0D) + bound_s ELSE clock_s END) AS cpu,
            (unix_micros(max(last_at)) - unix_micros(min(first_at))) / 1e6D AS seconds,
            max(last_at) AS last_at,
            flatten(collect_list(bins)) AS bins
          FROM judged GROUP BY site
        )
        SELECT * FROM polled
        """,
        units=SITE_UNITS.check(units, step),
    )


# -- links -------------------------------------------------------------------------------------


def sum_links(rows: DataFrame, unit: str = TEN_OF_ROW) -> DataFrame:
    """LINKS rows -> LINK_UNITS."""
    step = "sum up units of links"
    keys = ", ".join(END)
    described = {name: f"max(struct(at, {name}))" for name in _DESCRIBED}
    counts = "struct(at, epoch, messages)"
    return LINK_UNITS.query(
        step,
        f"""
        WITH paired AS (
          SELECT *,
            lag(at) OVER polls IS NULL AS is_first,
            lead(at) OVER polls IS NULL AS is_last,
            (unix_micros(at) - unix_micros(lag(at) OVER polls)) / 1e6D AS clock_s,
            messages - lag(messages) OVER polls AS sent,
            -- <=>: the ends that count without epochs have null in all rows
            epoch <=> lag(epoch) OVER polls AS is_same
          FROM (SELECT *, {unit} AS unit FROM {{rows}})
          WINDOW polls AS (PARTITION BY {keys}, unit ORDER BY at, epoch, messages)
        ),
        judged AS (
          SELECT *,
            is_same AND sent >= 0 AND clock_s > 0 AS is_good,
            CASE WHEN coalesce(clock_s > 0, true) THEN cast(lag AS double) END AS one_lag,
            unix_micros(at) / 1e6D - unit * {UNIT_S} AS at_s
          FROM paired
        )
        SELECT unit, {keys}, {name_all(described)},
          max(CASE WHEN one_lag IS NOT NULL THEN struct(at, lag) END) AS lag,
          sum(CASE WHEN is_good THEN sent END) AS sent,
          sum(CASE WHEN is_good THEN clock_s END) AS sent_s,
          count(one_lag) AS lags,
          avg(CASE WHEN one_lag IS NOT NULL THEN at_s END) AS mean_s,
          avg(one_lag) AS mean_lag,
          regr_sxx(one_lag, at_s) AS s_s,
          regr_sxy(one_lag, at_s) AS s_lag,
          regr_syy(one_lag, at_s) AS lag_lag,
          max(at) AS last_at,
          max(CASE WHEN is_first THEN {counts} END) AS first,
          max(CASE WHEN is_last THEN {counts} END) AS last
        FROM judged GROUP BY unit, {keys}
        """,
        rows=contract_of(LINKS).check(rows, step),
    )


def rate_ends(units: DataFrame) -> DataFrame:
    """LINK_UNITS of a window -> ENDS."""
    step = "rate links of units"
    keys = ", ".join(END)
    described = {name: f"max({name}).{name}" for name in _DESCRIBED}
    # moments of parts add up: the second ones with those of the parts' means
    deviation_s = "(mean_s - all_s)"
    deviation_lag = "(mean_lag - all_lag)"
    return ENDS.query(
        step,
        f"""
        WITH placed AS (
          SELECT * EXCEPT (mean_s),
            -- seconds from the first unit, so that no digits are lost
            mean_s + (unit - min(unit) OVER (PARTITION BY {keys})) * {UNIT_S} AS mean_s,
            lag(last) OVER (PARTITION BY {keys} ORDER BY unit) AS before
          FROM {{units}}
        ),
        bounds AS (
          SELECT *,
            first.messages - before.messages AS bound_sent,
            (unix_micros(first.at) - unix_micros(before.at)) / 1e6D AS bound_s,
            before IS NOT NULL AND (first.epoch <=> before.epoch) AS is_same,
            sum(lags * mean_s) OVER (PARTITION BY {keys})
              / nullif(sum(lags) OVER (PARTITION BY {keys}), 0) AS all_s,
            sum(lags * mean_lag) OVER (PARTITION BY {keys})
              / nullif(sum(lags) OVER (PARTITION BY {keys}), 0) AS all_lag
          FROM placed
        ),
        judged AS (
          SELECT *, coalesce(is_same AND bound_sent >= 0 AND bound_s > 0, false) AS is_good
          FROM bounds
        ),
        summed AS (
          SELECT {keys}, {name_all(described)},
            max(lag).lag AS lag,
            sum(CASE WHEN is_good THEN coalesce(sent, 0L) + bound_sent ELSE sent END)
              AS good_sent,
            sum(CASE WHEN is_good THEN coalesce(sent_s, 0D) + bound_s ELSE sent_s END) AS good_s,
            sum(s_s + lags * {deviation_s} * {deviation_s}) AS s_s,
            sum(s_lag + lags * {deviation_s} * {deviation_lag}) AS s_lag,
            sum(lag_lag + lags * {deviation_lag} * {deviation_lag}) AS lag_lag,
            max(last_at) AS last_at
          FROM judged GROUP BY {keys}
        ),
        rated AS (
          SELECT *,
            CASE WHEN s_s > 0 THEN s_lag / s_s END AS lag_per_s,
            -- a lag that never changed lies on a line, though it has no correlation
            CASE WHEN s_s > 0 THEN
              CASE WHEN lag_lag > 0 THEN s_lag * s_lag / (s_s * lag_lag) ELSE 1D END END AS lag_fit
          FROM summed
        )
        SELECT * FROM rated
        """,
        units=LINK_UNITS.check(units, step),
    )


# -- plans -------------------------------------------------------------------------------------

PLAN_UNITS = Contract("units of plans", {"unit": "bigint", **NEWEST_PLANS.columns})


def choose_plans(rows: DataFrame, unit: str = TEN_OF_ROW) -> DataFrame:
    """PLANS rows -> PLAN_UNITS: the newest of each task and unit."""
    step = "choose plans of units"
    return PLAN_UNITS.query(
        step,
        f"""
        SELECT * FROM (
          SELECT *,
            row_number() OVER (PARTITION BY engine_job_id, vertex, unit ORDER BY at DESC) AS place
          FROM (SELECT *, {unit} AS unit FROM {{rows}}))
        WHERE place = 1
        """,
        rows=contract_of(PLANS).check(rows, step),
    )


TASK_TABLE = UnitTable(TASKS, TASK_UNITS, sum_tasks)
SITE_TABLE = UnitTable(SITES, SITE_UNITS, sum_sites)
LINK_TABLE = UnitTable(LINKS, LINK_UNITS, sum_links)
PLAN_TABLE = UnitTable(PLANS, PLAN_UNITS, choose_plans)
