"""The same jobs on each kind of engine, and where their artifacts lie.

| what | Flink | process | Spark |
|---|---|---|---|
| `pass` | PassThrough | speck_programs.forward | pass_through.py |
| `count` by key | Counting | bench.programs.counting | bench/programs/spark/count_by_key.py |
| `filter` detections | Clean | speck_programs.clean | clean.py |
| `windows`: statistics | LocalStats | speck_programs.local_stats | .../window_count.py |
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

from speck.fog.paths import checkout, edge_jar
from speck.model.values import JsonObject

FLINK, PROCESS, SPARK = "flink", "process", "spark"
PASS, COUNT, FILTER, WINDOWS = "pass", "count", "filter", "windows"
PROGRAMS = Path(__file__).parent / "programs"
ARCHIVE = "bench-programs.pyz"
_PACKAGE = "bench_programs"
_MADE = (2024, 1, 1, 0, 0, 0)

_JAVA = {PASS: "PassThrough", COUNT: "Counting", FILTER: "Clean", WINDOWS: "LocalStats"}
_PYTHON = {
    PASS: "speck_programs.forward",
    COUNT: f"{_PACKAGE}.counting",
    FILTER: "speck_programs.clean",
    WINDOWS: "speck_programs.local_stats",
}
_PYSPARK = {
    PASS: "pass_through.py",
    COUNT: "count_by_key.py",
    FILTER: "clean.py",
    WINDOWS: "window_count.py",
}


def describe_program(engine: str, what: str) -> JsonObject:
    """The fields of a job that say what it runs, on an engine of this kind."""
    if engine == PROCESS:
        return {"engine": PROCESS, "job_path": ARCHIVE, "entry_class": _PYTHON[what]}
    if engine == SPARK:
        return {"engine": SPARK, "job_path": _PYSPARK[what]}
    return {"job_path": "speck-jobs.jar", "entry_class": f"io.speck.jobs.{_JAVA[what]}"}


def write_jobs(folder: Path) -> Sequence[Path]:
    """The folders of all these jobs' artifacts; those of processes are packed into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _pack(folder / ARCHIVE)
    pyspark = checkout() / "edge_jobs/pyspark"
    return [edge_jar("speck-jobs.jar").parent, folder, pyspark, PROGRAMS / "spark"]


def _pack(archive: Path) -> None:
    """The archive of the jobs that are Python programs, and the bench's own in it."""
    shutil.copyfile(edge_jar("speck-programs.pyz"), archive)
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(PROGRAMS.glob("*.py")):
            info = zipfile.ZipInfo(f"{_PACKAGE}/{file.name}", _MADE)
            info.external_attr = 0o644 << 16
            out.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
