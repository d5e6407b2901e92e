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
WITHOUT_SESSION = """
import sys

from pyspark.java_gateway import launch_gateway
from speck_spark.session import SETTINGS

gateway = launch_gateway()
hadoop = gateway.jvm.org.apache.hadoop
Path, conf = hadoop.fs.Path, hadoop.conf.Configuration()
for name, value in SETTINGS.items():
    conf.set(name, value)
streaming = gateway.jvm.org.apache.spark.sql.execution.streaming
files = streaming.checkpointing.CheckpointFileManager.create(Path(sys.argv[1]), conf)


def write(name, content, overwrites=False):
    out = files.createAtomic(Path(f"{sys.argv[1]}/{name}"), overwrites)
    out.write(bytearray(content))
    out.close()


files.mkdirs(Path(f"{sys.argv[1]}/state/0"))
for folder in ("offsets", "commits"):
    files.mkdirs(Path(f"{sys.argv[1]}/{folder}"))
    write(f"{folder}/0", b"first")
write("metadata", b"once")
write("state/0/1.delta", b"first", overwrites=True)
with open(f"{sys.argv[1]}/state/0/.1.delta.crc", "w") as other:
    other.write("of a file that another manager has written")
write("state/0/1.delta", b"second", overwrites=True)
try:
    write("offsets/0", b"second")
except Exception as error:
    assert "FileAlreadyExists" in str(error), error
else:
    raise AssertionError("a log was written twice")
out = files.createAtomic(Path(f"{sys.argv[1]}/offsets/1"), False)
out.write(bytearray(b"never"))
out.cancel()
for name, content in (("offsets/0", b"first"), ("state/0/1.delta", b"second")):
    stream = files.open(Path(f"{sys.argv[1]}/{name}"))
    assert bytes(stream.readAllBytes()) == content
assert not files.exists(Path(f"{sys.argv[1]}/offsets/1"))
gateway.shutdown()
"""
WITH_SESSION = """
import sys
import time

from pyspark.sql import SparkSession
from speck_spark.session import configure

spark = configure(SparkSession.builder).getOrCreate()
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


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(WITHOUT_SESSION, id="without a session"),
        pytest.param(WITH_SESSION, id="a query", marks=pytest.mark.long),
    ],
)
def test_each_file_of_a_checkpoint_is_on_disk_before_it_has_its_name(
    tmp_path: Path, program: str
) -> None:
    checkpoint = tmp_path / "query"
    named = check_order(record(program, tmp_path, checkpoint), checkpoint)
    kinds = {Path(each).relative_to(checkpoint).parts[0] for each in named}
    assert kinds >= {"metadata", "offsets", "commits", "state"}
    files = {str(each) for each in checkpoint.rglob("*") if each.is_file()}
    left = {each for each in files - named if not each.endswith(".tmp")}
    assert not left, "these were written in another way"


def record(program: str, folder: Path, checkpoint: Path) -> list[str]:
    """The syncs and renamings of a program with Spark's JVM, in their order."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "this test needs a C compiler"
    shim, calls = folder / "shim.so", folder / "calls"
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
    run = [sys.executable, "-c", program, str(checkpoint)]
    subprocess.run(run, env=environment, check=True, timeout=600)
    return calls.read_text().splitlines()


def check_order(calls: list[str], checkpoint: Path) -> set[str]:
    """A thread syncs a file, renames it and syncs its folder, before it renames the next one.
    Returns the names."""
    synced, named = set(), set()
    unsynced: dict[str, str] = {}
    for line in calls:
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
    return named
