"""What a program in PySpark gets besides what others get: Spark in its own process, the connector,
and the helper that lies in the connector's jar.

Spark runs in the program's own JVM (`local[n]`): driver and executor are one process, a child of
the program, which so ends with it. With a standalone cluster (`spark://host:port`) that JVM is the
driver, and executors run at the cluster's workers.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from speck.errors import PermanentError
from speck.runner.owners import SCRATCH

SECRET = "SPECK_SPARK_SECRET"
"""The variable with a cluster's secret, which `speck_spark` hands to Spark in a file."""
_KEPT = ("JAVA_HOME",)
_LEAST_HEAP_MB = 256
# without the second, a thread that has run out of memory leaves a JVM that does nothing any more
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
_LOOPBACK = "127.0.0.1"
_MASTER = re.compile(r"spark://([\w.-]+):(\d{1,5})(,[\w.-]+:\d{1,5})*")
_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
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
    jar: Path,
    folder: Path,
    python: str,
    memory_mb: int,
    width: int,
    master: str | None = None,
    secret_file: Path | None = None,
) -> Mapping[str, str]:
    """The environment of a program with Spark. Half of its memory is the JVM's heap: the other half
    is for what else the JVM takes, and for Python. `width` tasks run at a time; so many partitions
    a new state has. At a cluster's `master` an executor has as much heap as the driver; the
    cluster's secret is in `secret_file`. Raises OSError if that cannot be read, or if the
    cluster's name leads nowhere."""
    heap_mb = max(_LEAST_HEAP_MB, memory_mb // 2)
    host = _LOOPBACK if master is None else _find_own_address(master)
    conf = {
        **_CONF,
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.sql.shuffle.partitions": str(width),
        "spark.local.dir": str(folder / SCRATCH),
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} -Djava.io.tmpdir={folder / SCRATCH}",
    }
    words = ["--master", master or f"local[{width}]", "--driver-memory", f"{heap_mb}m"]
    words += ["--driver-class-path", str(jar)]
    secret = {}
    if master is not None:
        words += ["--jars", str(jar), "--py-files", str(jar)]
        conf |= {"spark.cores.max": str(width), "spark.executor.memory": f"{heap_mb}m"}
        conf["spark.network.crypto.enabled"] = "true"
        secret = {SECRET: _read_secret(secret_file)}
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        **secret,
        "PYTHONPATH": str(jar),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"]),
    }


def check_cluster(master: str, secret_file: Path | None) -> None:
    """Raises PermanentError unless `master` is that of a standalone cluster, whose secret is in the
    file."""
    if _MASTER.fullmatch(master) is None:
        raise PermanentError(
            f"cannot run jobs at {master}: write spark://host:port of a standalone cluster; without"
            " --spark-master each job has a Spark of its own"
        )
    try:
        _read_secret(secret_file)
    except (OSError, UnicodeDecodeError) as error:
        raise PermanentError(f"cannot run jobs at {master}: {error}") from error


def _find_own_address(master: str) -> str:
    """The address of this machine by which the cluster's machines reach it."""
    host, port = _MASTER.fullmatch(master).groups()[:2]  # type: ignore[union-attr]
    family, _, _, _, there = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(there)  # sends nothing
        return str(probe.getsockname()[0])


def _read_secret(file: Path | None) -> str:
    """Raises OSError."""
    secret = file.read_text().strip() if file is not None else ""
    if not secret or len(secret.split()) > 1:
        raise OSError(
            "its spark.authenticate.secret is missing: name a file that holds it and nothing else"
            f" with --spark-secret-file (now {file or 'none'})"
        )
    return secret


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
