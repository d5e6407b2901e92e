"""How long the analyzer takes: `make bench-analyzer` writes bench/results/analyzer.json.

`warm` are answers of the application that stays up, as the service asks it: each window ends a
minute after the one before, so that from time to time sums of new units are added. `cold_s` is the
first answer of a new application for 17 jobs, from the start of its process (an earlier one has
left the archive of its classes), and `fixed_s` a warm answer with next to no rows. `seconds` is a
warm answer for `rows` of tasks of which no sums are cached: 1000 jobs on 100 sites, 24 h at a
sample every 10 s, made by bench/samples.py with gaps, resets and other faults.

`growth` has half of these rows, all and double, each analysed by a process of its own, from its
start to the analysis in its file, with nothing cached. Memory is that of the process and its JVM,
sampled; what they share counts once. Beside each, DuckDB computes the same analysis from the same
files (bench/duckdb_analysis), in a process of its own, too. All figures must agree to 1e-6, or the
exit status is 1.

`beside_a_fog` is what a user meets (bench/analyzer_fog.py).

    python -m bench.analyzer [--jobs N] [--sites N] [--hours H] [--cores N] [--no-file]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path

import psutil

from bench.analyzer_fog import measure_beside_a_fog
from bench.common import is_quick, machine, say, write_result, write_series
from bench.duckdb_analysis.comparison import find_differences
from bench.samples import Spec, generate
from speck.analyzer.process import SparkApplication
from speck.analyzer.request import AnalyzerRequest
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.origins import UNITS
from speck.metrics.dataset.reading import find_newest
from speck.metrics.dataset.schema import TASKS
from speck.model.values import JsonObject

_SAMPLE_S = 0.1
PARTS = (1.0,) if is_quick() else (0.5, 1.0, 2.0)
WARM = ((17, 600.0),) if is_quick() else ((17, 600.0), (100, 3600.0), (1000, 86_400.0))
"""Jobs and length of the window in seconds."""
WARM_UP, ASKED = (2, 3) if is_quick() else (6, 12)
"""Requests that are not counted, and those that are."""


def main() -> int:
    """The benchmark; status 1 when the two analyses do not agree."""
    options = _options()
    beside_a_fog = measure_beside_a_fog()
    if options.beside_a_fog:
        write_series("analyzer.json", "beside_a_fog", beside_a_fog)
        return 0
    cold_s = _measure_cold(options)
    warm = _measure_warm(options)
    growth = [_measure(options, options.hours * part) for part in PARTS]
    uncached = max(warm, key=lambda row: int(row["jobs"]))["nothing_cached"]
    content = {
        "warm": [row for row in warm if row["jobs"] > 1],
        "cold_s": cold_s,
        "beside_a_fog": beside_a_fog,
        "fixed_s": next(row["seconds"] for row in warm if row["jobs"] == 1),
        "rows": uncached["rows"],
        "seconds": uncached["seconds"],
        "peak_mb": growth[len(growth) // 2]["peak_mb"],
        "growth": growth,
        "duckdb_s": growth[len(growth) // 2]["duckdb_s"],
        "compared": sum(row["compared"] for row in growth),
        "differences": sum(row["differences"] for row in growth),
        "agree": not any(row["differences"] for row in growth),
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
    parser.add_argument(
        "--beside-a-fog", action="store_true", help="measure that alone; the rest stays as it is"
    )
    parser.add_argument("--no-file", action="store_true", help="print only")
    return parser.parse_args()


def _measure_cold(options: argparse.Namespace) -> float:
    """Seconds of a first answer; an application before it leaves the archive of its classes."""
    with _make_dataset(17, 600.0) as root:
        for _ in range(2):
            with _start(options, root.parent) as application:
                seconds = _ask(application, root, 600.0, 0)
                _ask(application, root, 600.0, 1)  # after the archive was written
    return round(seconds, 2)


def _measure_warm(options: argparse.Namespace) -> list[JsonObject]:
    """The warm answers."""
    rows = []
    for jobs, window_s in (*WARM, (1, 60.0)):
        # each has an application of its own: more rows need a larger JVM
        with _make_dataset(jobs, window_s) as root, _start(options, root.parent) as application:
            ask = partial(_ask, application, root, window_s)
            seconds = [ask(number) for number in range(WARM_UP + ASKED)]
            row = {
                "jobs": jobs,
                "window_s": window_s,
                "seconds": round(statistics.median(seconds[WARM_UP:]), 2),
                "most_s": round(max(seconds[WARM_UP:]), 2),
                "nothing_cached": _ask_uncached(root, ask),
            }
        rows.append(row)
        say(f"warm: {row}")
    return rows


@contextmanager
def _make_dataset(jobs: int, window_s: float) -> Iterator[Path]:
    """A dataset that is half an hour longer than the window."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-analyzer-") as folder:
        root = Path(folder, "metrics")
        sites = max(2, min(100, jobs // 5))
        generate(root, Spec(jobs=jobs, sites=sites, hours=window_s / 3600 + 0.5, stateful=0.05))
        yield root


@contextmanager
def _start(options: argparse.Namespace, folder: Path) -> Iterator[SparkApplication]:
    """An application that stays up, whose log is in the folder."""
    argv = [sys.executable, "-m", "speck.analyzer", "--serve", "--memory", options.memory]
    application = SparkApplication([*argv, "--master", f"local[{options.cores}]"], folder / "log")
    try:
        yield application
    finally:
        application.end()
        application.await_end()


def _ask_uncached(root: Path, ask: Callable[[int], float]) -> JsonObject:
    """The rows of tasks and the seconds of an answer for which no sums of units are cached."""
    shutil.rmtree(root / UNITS, ignore_errors=True)
    seconds = round(ask(0), 2)
    return {"rows": json.loads(_answer_of(root).read_text())["samples"]["rows"], "seconds": seconds}


def _ask(application: SparkApplication, root: Path, window_s: float, number: int) -> float:
    """Seconds of one answer, of a window that ends some minutes after the first one's."""
    until = find_newest(LocalStorage(root), TASKS)
    assert until is not None
    until -= timedelta(minutes=WARM_UP + ASKED - number)
    request = AnalyzerRequest(LocalStorage(root), _answer_of(root), window_s=window_s, until=until)
    began = time.perf_counter()
    outcome = application.ask(request, lambda _: None)
    seconds = time.perf_counter() - began
    if outcome != ("done", ""):
        raise RuntimeError(f"{outcome}: {application.describe_end()}")
    return seconds


def _answer_of(root: Path) -> Path:
    """The file of the answer for a dataset."""
    return root.parent / "analysis.json"


def _measure(options: argparse.Namespace, hours: float) -> JsonObject:
    """One size: made, analysed, and analysed by DuckDB."""
    with tempfile.TemporaryDirectory(prefix="speck-bench-analyzer-") as folder:
        root, out, its_out = (Path(folder, name) for name in ("metrics", "ours", "duckdb"))
        began = time.perf_counter()
        spec = Spec(jobs=options.jobs, sites=options.sites, hours=hours, stateful=0.05)
        rows = generate(root, spec).rows["tasks"]
        say(f"{rows} rows of tasks made in {time.perf_counter() - began:.0f} s")
        until = find_newest(LocalStorage(root), TASKS)
        assert until is not None
        window = ["--since", spec.start.isoformat(), "--until", until.isoformat()]
        spark = ["--dataset", str(root), "--memory", options.memory]
        spark += ["--master", f"local[{options.cores}]", "--out", str(out)]
        seconds, peak = _run("speck.analyzer", *spark, *window)
        say(f"analysed in {seconds:.1f} s, {peak:.0f} MB")
        duckdb = [str(root), "--cores", str(options.cores), "--out", str(its_out)]
        duckdb_s, duckdb_peak = _run("bench.duckdb_analysis", *duckdb, *window)
        say(f"analysed by DuckDB in {duckdb_s:.1f} s, {duckdb_peak:.0f} MB")
        analysis, its = (json.loads(file.read_text()) for file in (out, its_out))
    if analysis["samples"]["rows"] != rows:
        raise RuntimeError(f"{analysis['samples']['rows']} rows were read of {rows}")
    compared, differences = find_differences(analysis, its)
    for each in differences[:5]:
        say(f"they differ: {each}")
    return {
        "rows": rows,
        "hours": hours,
        "seconds": round(seconds, 2),
        "rows_per_s": round(rows / seconds),
        "peak_mb": round(peak),
        "duckdb_s": round(duckdb_s, 2),
        "duckdb_peak_mb": round(duckdb_peak),
        "compared": compared,
        "differences": len(differences),
        "samples": analysis["samples"],
    }


def _run(module: str, *arguments: str) -> tuple[float, float]:
    """Seconds that a Python process takes, and the most MB it and its children had at once."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log)
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
                total += each.memory_full_info().pss / 2**20  # a fork shares the pages of its JVM
    return total


if __name__ == "__main__":
    sys.exit(main())
