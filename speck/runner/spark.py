"""What a program in PySpark gets besides what others get: Spark in its own process, the connector,
and the helper that lies in the connector's jar.

Spark runs in the program's own JVM (`local[n]`): driver and executor are one process, a child of
the program, which so ends with it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from speck.errors import PermanentError
from speck.runner.owners import SCRATCH

_KEPT = ("JAVA_HOME",)
_LEAST_HEAP_MB = 256
_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # other users of the machine reach these ports, too; the secret is made up at the start
    "spark.authenticate": "true",
    # a state is carried when its job moves: few versions of few partitions
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Python reads each of them anew once in an interval
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # without data, too: it says that the query runs
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
}


def describe_spark(
    jar: Path, folder: Path, python: str, memory_mb: int, width: int
) -> Mapping[str, str]:
    """The environment of a program with Spark. Half of its memory is the JVM's heap: the other half
    is for what else the JVM takes, and for Python. `width` tasks run at a time; so many partitions
    a new state has."""
    heap_mb = max(_LEAST_HEAP_MB, memory_mb // 2)
    conf = {
        **_CONF,
        "spark.sql.shuffle.partitions": str(width),
        "spark.local.dir": str(folder / SCRATCH),
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -Djava.io.tmpdir={folder / SCRATCH}",
    }
    words = ["--master", f"local[{width}]", "--driver-memory", f"{heap_mb}m"]
    words += ["--driver-class-path", str(jar)]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        "PYTHONPATH": str(jar),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"]),
    }


_VERSION = "from importlib.metadata import version; print(version('pyspark'))"


def find_spark(python: str) -> str:
    """The version of PySpark that a Python has. Raises PermanentError if it has none."""
    try:
        command = [python, "-P", "-c", _VERSION]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise PermanentError(
            f"cannot run jobs with Spark: {python} has no pyspark; install 'pyspark>=4.3,<5' there,"
            " or name another Python with --python"
        ) from error
    return answer.stdout.strip()
