"""The analysis of speck.analyzer once more, in SQL of its own that DuckDB runs over the raw rows.

It follows the definitions in docs/metrics.md and in the docstrings of speck.analyzer, and shares no
code with it: `comparison.find_differences` compares the two figure by figure. It has what comes of
the rows themselves: samples, jobs, sites and ends of links; not what speck.analyzer computes of
these without Spark (rates of links, origins, ranking, bottlenecks), nor forecasts and the list of
damaged files. Begin with `rates.sql`; the files run in the order of `_PARTS`.

    python -m bench.duckdb_analysis DATASET --since TIME --until TIME --out FILE
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TASKS, Table
from speck.model.values import JsonObject

_EPOCH = datetime.fromtimestamp(0, UTC)
_TEN_MINUTES, _HOUR = 600_000_000, 3_600_000_000
_LONG_S, _VERY_LONG_S = 7200.0, 28_800.0
_PLANS_BEFORE = 2 * _HOUR
_PARTS = ("macros", "rates", "sites", "ends", "jobs")
_END = ("source_site", "source_topic", "sink_site", "sink_topic")
_NOT_OF_JOBS = {"tier", "state_why", "bytes_in_rate", "bytes_out_rate", *_END}
_OF_SITES = (
    *("tier", "cores", "core_speed", "slots_total", "slots_free", "host_cpu", "cpu", "busy"),
    *("uplink_mbps", "heap_bytes", "heap_max_bytes", "heap_bytes_per_subtask"),
    *("heap_per_state_byte", "load"),
)


_OF_ENDS = (
    "composition, broker_site, topic, role, client_id, job_name, records_per_s as counted_per_s,"
    " lag, lag_per_s, lag_fit"
)

_ONE_A_JOB = """
    qualify row_number() over (
      partition by composition, broker_site, topic, role, job_name,
        case when job_name is null then client_id end
      order by last_us desc, client_id) = 1"""
"""A job that changed its id was seen under both."""


def analyse(
    root: Path, since: datetime, until: datetime, composition: str | None = None, cores: int = 2
) -> JsonObject:
    """The analysis of the dataset at `root`, without `window`, in the shape of the analyzer's."""
    database = duckdb.connect()
    database.execute(f"set threads = {cores}")
    database.execute("set timezone = 'UTC'")
    database.execute("set default_null_order = 'nulls_first'")
    _set_window(database, since, until)
    # an untyped null would be an integer
    database.execute("set variable composition = cast(? as varchar)", [composition])
    for table in (TASKS, SITES, LINKS, PLANS):
        _open(database, root, table)
    for part in _PARTS:
        _run(database, part)
    return _render(database)


def _set_window(database: duckdb.DuckDBPyConnection, since: datetime, until: datetime) -> None:
    """Tell the queries the window; a long one begins with whole ten minutes."""
    first, last = ((at - _EPOCH) // timedelta(microseconds=1) for at in (since, until))
    if (last - first) / 1e6 >= _LONG_S:
        first -= first % _TEN_MINUTES
    seconds = (last - first) / 1e6
    plans_since = first - _PLANS_BEFORE
    if (last - plans_since) / 1e6 >= _LONG_S:
        plans_since -= plans_since % _TEN_MINUTES
    hours = range(-(-first // _HOUR) * _HOUR, last // _HOUR * _HOUR)
    variables = {
        "since_us": first,
        "until_us": last,
        "seconds": seconds,
        "plans_since_us": plans_since,
        "hours_from_us": hours.start if seconds >= _VERY_LONG_S else 0,
        "hours_to_us": hours.stop if seconds >= _VERY_LONG_S else 0,
    }
    for name, value in variables.items():
        kind = "double" if name == "seconds" else "bigint"
        database.execute(f"set variable {name} = {value!r}::{kind}")


def _open(database: duckdb.DuckDBPyConnection, root: Path, table: Table) -> None:
    """Make a view of the rows of a table."""
    if not any((root / table.name).rglob("*.parquet")):
        partitions = "".join(f", null::varchar as {name}" for name in table.partitions)
        empty = table.schema.empty_table()
        database.register(f"no_{table.name}", empty)
        database.execute(f"create view {table.name} as select *{partitions} from no_{table.name}")
        return
    kinds = ", ".join(f"'{name}': varchar" for name in table.partitions)
    database.execute(
        f"create view {table.name} as select * from read_parquet("
        f"'{root}/{table.name}/**/*.parquet', union_by_name = true, hive_partitioning = true,"
        f" hive_types = {{{kinds}}})"
    )


def _run(database: duckdb.DuckDBPyConnection, part: str) -> None:
    database.execute(Path(__file__).with_name(f"{part}.sql").read_text())


def _render(database: duckdb.DuckDBPyConnection) -> JsonObject:
    ours = "getvariable('composition') is null or composition = getvariable('composition')"
    samples = "rows", "duplicates", "resets", "gaps", "nan", "contended"
    sums = ", ".join(
        f"coalesce(sum({'row_count' if name == 'rows' else name}), 0) as {name}" for name in samples
    )
    jobs = []
    for row in _fetch(database, f"select * from jobs where {ours}"):
        ends = {
            end: {"site": row[f"{end}_site"], "topic": row[f"{end}_topic"]}
            for end in ("source", "sink")
        }
        jobs.append({name: v for name, v in row.items() if name not in _NOT_OF_JOBS} | ends)
    return {
        "samples": next(_fetch(database, f"select {sums} from task_rates")),
        "jobs": jobs,
        "ends": list(_fetch(database, f"select {_OF_ENDS} from ends where ({ours}) {_ONE_A_JOB}")),
        "sites": list(
            _fetch(database, f"select site as name, {', '.join(_OF_SITES)} from site_loads")
        ),
    }


def _fetch(database: duckdb.DuckDBPyConnection, query: str) -> Iterator[JsonObject]:
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description or ()]
    for row in cursor.fetchall():
        values = {name: _to_plain(value) for name, value in zip(names, row, strict=True)}
        if values.get("composition") == "_alone":
            values["composition"] = None
        yield values


def _to_plain(value: Any) -> Any:
    """As JSON has it: numbers that are not finite are null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
