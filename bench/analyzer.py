"""How long the analyzer takes: `make bench-analyzer` writes bench/results/analyzer.json.

1000 jobs on 100 sites, 24 h at a sample every 10 s (8.64 million rows of tasks and more: some looks
are lost, one job in twenty has several tasks), made by bench/samples.py with gaps, resets and other
faults; then half and
double of it. `seconds` are those of the whole process, from its start (a JVM's) to the analysis in
its file; no sums are cached then. Memory is that of the process and its JVM, sampled. Beside it
DuckDB works out the same rates from the same files, and both must agree to 1e-6, or the exit status
is 1.

`warm` are answers of the application that stays up, as the service asks it: each window ends a
minute after the one before, so that from time to time sums of new units are added. `cold_s` is the
first answer of a new one, and `fixed_s` a warm one with next to no rows.

    python -m bench.analyzer [--jobs N] [--sites N] [--hours H] [--cores N] [--no-file]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path

import psutil

from bench.common import is_quick, machine, say, write_result
from bench.samples import Spec, generate
from speck.analyzer.request import Request
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import find_newest
from speck.metrics.dataset.schema import TASKS
from speck.model.values import JsonObject
from speck.service.spark_application import SparkApplication

TOLERANCE = 1e-6
COMPARED = ("in_rate", "out_rate", "bytes_in_rate", "bytes_out_rate", "utilisation")
_SAMPLE_S = 0.1
PARTS = (1.0,) if is_quick() else (0.5, 1.0, 2.0)
WARM = ((17, 600.0),) if is_quick() else ((17, 600.0), (100, 3600.0), (1000, 86_400.0))
"""Jobs and length of the window in seconds."""
WARM_UP, ASKED = (2, 3) if is_quick() else (6, 12)
"""Requests that are not counted, and those that are."""

RATES = """
with told as (
  select engine_job_id, vertex, subtask, "at", is_source, is_sink, restarts,
         records_in, records_out, bytes_in, bytes_out,
         case when isnan(busy_ms) then null else busy_ms end as busy_ms,
         case when isnan(idle_ms) then null else idle_ms end as idle_ms,
         case when isnan(back_pressured_ms) then null else back_pressured_ms end as back_ms
  from read_parquet('{files}', union_by_name = true)
  where "at" >= '{since}'::timestamptz and "at" <= '{until}'::timestamptz
), paired as (
  select *,
         epoch_us("at") - lag(epoch_us("at")) over w as us,
         busy_ms - lag(busy_ms) over w as busy, idle_ms - lag(idle_ms) over w as idle,
         back_ms - lag(back_ms) over w as back,
         records_in - lag(records_in) over w as ri, records_out - lag(records_out) over w as ro,
         bytes_in - lag(bytes_in) over w as bi, bytes_out - lag(bytes_out) over w as bo,
         restarts - lag(restarts) over w as again
  from told
  window w as (partition by engine_job_id, vertex, subtask
               order by "at", busy_ms, idle_ms, back_ms, records_in, records_out)
), good as (
  select *, us / 1e6 as clock, (busy + idle + back) / 1e3 as told_s from paired
  where us > 0 and coalesce(again, 0) = 0
    and coalesce(least(busy, idle, back, ri, ro, bi, bo), 0) >= 0
), summed as (
  select engine_job_id, vertex, subtask, any_value(is_source) as is_source,
         any_value(is_sink) as is_sink,
         sum(told_s) / sum(clock) filter (told_s is not null) as pace,
         sum(busy) / 1e3 / sum(clock) filter (busy is not null) as busy,
         sum(ri) / sum(clock) filter (ri is not null) as ri,
         sum(ro) / sum(clock) filter (ro is not null) as ro,
         sum(bi) / sum(clock) filter (bi is not null) as bi,
         sum(bo) / sum(clock) filter (bo is not null) as bo
  from good group by all
), rated as (
  select *, case when pace between 0.5 and 1.5 then pace else 1 end as p from summed
), of_tasks as (
  select engine_job_id, vertex, any_value(is_source) as is_source, any_value(is_sink) as is_sink,
         avg(busy / p) as busiest, count(busy) = count(*) as busy_told,
         sum(ri / p) as ri, sum(ro / p) as ro, sum(bi / p) as bi, sum(bo / p) as bo
  from rated group by engine_job_id, vertex
)
select engine_job_id, sum(ri) filter (is_source) as in_rate, sum(ro) filter (is_sink) as out_rate,
       sum(bi) filter (is_source) as bytes_in_rate, sum(bo) filter (is_sink) as bytes_out_rate,
       case when bool_and(busy_told) then max(busiest) end as utilisation
from of_tasks group by engine_job_id
"""


def main() -> int:
    """The benchmark; status 1 when the two do not agree."""
    options = _options()
    if options.duckdb:
        _duckdb(options)
        return 0
    warm, cold_s = _measure_warm(options)
    full = [_measure(options, options.hours * part) for part in PARTS]
    chosen = full[len(full) // 2]
    content = {
        "rows": chosen["rows"],
        "seconds": chosen["seconds"],
        "rows_per_s": round(chosen["rows"] / chosen["seconds"]),
        "peak_mb": chosen["peak_mb"],
        "growth": [{k: v for k, v in one.items() if k != "beside"} for one in full],
        "beside": chosen["beside"],
        "duckdb_s": chosen["beside"]["seconds"],
        "warm": [row for row in warm if row["jobs"] > 1],
        "cold_s": cold_s,
        "fixed_s": next(row["seconds"] for row in warm if row["jobs"] == 1),
        "agree": all(one["beside"]["differences"] == 0 for one in full),
        "cores": options.cores,
        "heap": options.memory,
        "machine": machine(),
        "versions": {name: version(name) for name in ("pyspark", "duckdb", "pyarrow")},
    }
    if options.no_file:
        print(json.dumps(content, indent=1))
    else:
        write_result("analyzer.json", content)
    return 0 if content["agree"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100 if is_quick() else 1000)
    parser.add_argument("--sites", type=int, default=10 if is_quick() else 100)
    parser.add_argument("--hours", type=float, default=2.0 if is_quick() else 24.0)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="heap of the JVM")
    parser.add_argument("--no-file", action="store_true", help="print only")
    parser.add_argument("--duckdb", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--since", help=argparse.SUPPRESS)
    parser.add_argument("--until", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure_warm(options: argparse.Namespace) -> tuple[list[JsonObject], float]:
    """The warm answers, and the seconds of the first one of 17 jobs from the start of the
    process."""
    rows, cold_s = [], 0.0
    with tempfile.TemporaryDirectory(prefix="speck-bench-analyzer-") as folder:
        argv = [sys.executable, "-m", "speck.analyzer", "--serve", "--memory", options.memory]
        argv += ["--master", f"local[{options.cores}]"]
        application = SparkApplication(argv, Path(folder, "log"))
        try:
            for jobs, window_s in (*WARM, (1, 60.0)):
                root = Path(folder, f"metrics-{jobs}")
                hours = window_s / 3600 + 0.5
                sites = max(2, min(100, jobs // 5))
                generate(root, Spec(jobs=jobs, sites=sites, hours=hours, stateful=0.05))
                ask = partial(_ask, application, root, window_s)
                seconds = [ask(number) for number in range(WARM_UP + ASKED)]
                cold_s = cold_s or seconds[0]
                row = {
                    "jobs": jobs,
                    "window_s": window_s,
                    "seconds": round(statistics.median(seconds[WARM_UP:]), 2),
                    "most_s": round(max(seconds[WARM_UP:]), 2),
                    "first_s": round(seconds[0], 2),
                }
                rows.append(row)
                say(f"warm: {row}")
        finally:
            application.end()
            application.await_end()
    return rows, round(cold_s, 2)


def _ask(application: SparkApplication, root: Path, window_s: float, number: int) -> float:
    """Seconds of one answer, of a window that ends some minutes after the first one's."""
    until = find_newest(LocalStorage(root), TASKS)
    assert until is not None
    until -= timedelta(minutes=WARM_UP + ASKED - number)
    out = root.parent / "analysis.json"
    request = Request(LocalStorage(root), out, window_s=window_s, until=until)
    began = time.perf_counter()
    outcome = application.ask(request, lambda _: None)
    seconds = time.perf_counter() - began
    if outcome != ("done", ""):
        raise RuntimeError(f"{outcome}: {application.describe_end()}")
    return seconds


def _measure(options: argparse.Namespace, hours: float) -> JsonObject:
    """One size: made, analysed, and worked out beside."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-analyzer-") as folder:
        root, out = Path(folder, "metrics"), Path(folder, "analysis.json")
        began = time.perf_counter()
        spec = Spec(jobs=options.jobs, sites=options.sites, hours=hours, stateful=0.05)
        truth = generate(root, spec)
        rows = truth.rows["tasks"]
        say(f"{rows} rows of tasks made in {time.perf_counter() - began:.0f} s")
        seconds, peak = _run(
            "-m speck.analyzer",
            dataset=root,
            out=out,
            window=hours * 3600 + 3600,
            memory=options.memory,
            master=f"local[{options.cores}]",
        )
        analysis = json.loads(out.read_text())
        say(f"analysed in {seconds:.1f} s, {peak:.0f} MB")
        if analysis["samples"]["rows"] != rows:
            raise RuntimeError(f"{analysis['samples']['rows']} rows were read of {rows}")
        beside = _beside(options, root, Path(folder, "duckdb.json"), analysis)
        return {
            "rows": rows,
            "hours": hours,
            "seconds": round(seconds, 2),
            "rows_per_s": round(rows / seconds),
            "peak_mb": round(peak),
            "samples": analysis["samples"],
            "beside": beside,
        }


def _beside(options: argparse.Namespace, root: Path, out: Path, analysis: JsonObject) -> JsonObject:
    window = analysis["window"]
    seconds, peak = _run(
        "-m bench.analyzer",
        duckdb=root,
        out=out,
        cores=options.cores,
        since=window["from"],
        until=_after(window["to"]),
    )
    say(f"DuckDB: {seconds:.1f} s, {peak:.0f} MB")
    theirs = {row["engine_job_id"]: row for row in json.loads(out.read_text())}
    count, apart = 0, []
    for job in analysis["jobs"]:
        ours = {
            **job,
            "bytes_in_rate": _product(job["bytes_in_per_record"], job["in_rate"]),
            "bytes_out_rate": _product(job["bytes_out_per_record"], job["out_rate"]),
        }
        for name in COMPARED:
            count += 1
            if not _equal(ours[name], theirs[job["engine_job_id"]][name]):
                apart.append(
                    (job["job_name"], name, ours[name], theirs[job["engine_job_id"]][name])
                )
    for each in apart[:5]:
        say(f"they differ: {each}")
    return {
        "tool": "DuckDB",
        "seconds": round(seconds, 2),
        "peak_mb": round(peak),
        "works_out": "rates of records and bytes, and utilisation, of each incarnation",
        "compared": count,
        "differences": len(apart),
    }


def _after(moment: str) -> str:
    """The analysis tells its window in whole ms, and the newest sample lies between two."""
    return (datetime.fromisoformat(moment) + timedelta(milliseconds=1)).isoformat()


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def _equal(ours: float | None, theirs: float | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs or not (ours or theirs)
    return math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=1e-12)


def _duckdb(options: argparse.Namespace) -> None:
    """The same rates, in a process of its own."""
    import duckdb

    database = duckdb.connect()
    database.execute(f"set threads = {options.cores}")
    database.execute("set timezone = 'UTC'")
    # of two rows of one key that differ, the same is the first as in Spark
    database.execute("set default_null_order = 'nulls_first'")
    files = f"{options.duckdb}/tasks/*/*/*.parquet"
    query = RATES.format(files=files, since=options.since, until=options.until)
    cursor = database.execute(query)
    names = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    options.out.write_text(json.dumps(rows))


def _run(program: str, **options: object) -> tuple[float, float]:
    """Seconds that a Python process takes, and the most MB it and its children had at once."""
    command = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    arguments = [*program.split(), *command]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, _tree_mb(process.pid))
            time.sleep(_SAMPLE_S)
        seconds = time.perf_counter() - began
        if process.returncode != 0:
            log.seek(0)
            raise RuntimeError(log.read().decode(errors="replace")[-4000:])
    return seconds, peak


def _tree_mb(pid: int) -> float:
    """Resident memory of a process and all below it."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += each.memory_info().rss / 2**20
    return total


if __name__ == "__main__":
    sys.exit(main())
