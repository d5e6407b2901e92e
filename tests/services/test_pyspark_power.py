"""What is left of a checkpoint of Spark after a power failure: what has a name is on disk."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from speck.fog.paths import edge_jar
from tests.process_programs import SPARK_JAR
from tests.pyspark_jobs import JOBS

SHIM = Path(__file__).with_name("recording_sync.c")
PROGRAM = """
import sys
import time

from pyspark.sql import SparkSession
from speck_spark.session import configure

configure(SparkSession.builder).getOrCreate()
spark = SparkSession.active()
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
counts = rows.groupBy((rows.value % 3).alias("key")).count()
query = (
    counts.writeStream.format("noop")
    .outputMode("update")
    .option("checkpointLocation", sys.argv[1])
    .trigger(processingTime="100 milliseconds")
    .start()
)
while query.isActive and len(query.recentProgress) < 4:
    time.sleep(0.05)
if query.exception() is not None:
    raise query.exception()
query.stop()
"""


@pytest.mark.long
def test_each_file_of_a_checkpoint_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "this test needs a C compiler"
    shim, calls, checkpoint = tmp_path / "shim.so", tmp_path / "calls", tmp_path / "query"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
    words = ["--master", "local[1]", "--driver-class-path", str(edge_jar(SPARK_JAR))]
    words += ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "SPECK_TEST_CALLS": str(calls),
        "PYTHONPATH": str(JOBS),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"]),
    }
    run = [sys.executable, "-c", PROGRAM, str(checkpoint)]
    subprocess.run(run, env=environment, check=True, timeout=600)
    synced, named = set(), set()
    unsynced: dict[str, str] = {}
    for line in calls.read_text().splitlines():
        thread, what, path, to = line.split("\t")
        if what == "sync":
            synced.add(path)
            if unsynced.get(thread) == path:
                del unsynced[thread]
        elif Path(to).is_relative_to(checkpoint):
            assert path in synced, f"{to} had its name before it was on disk"
            assert thread not in unsynced, f"{unsynced[thread]} went on without its names on disk"
            unsynced[thread] = str(Path(to).parent)
            named.add(to)
    assert not unsynced
    kinds = {Path(each).relative_to(checkpoint).parts[0] for each in named}
    assert kinds >= {"metadata", "offsets", "commits", "state"}
    files = {str(each) for each in checkpoint.rglob("*") if each.is_file()}
    assert files <= named, "these were written in another way"
