"""The Spark session: local by default, without a web interface; whoever connects to its driver
must know the application's secret.

A local session makes its own secret, and so do YARN and Kubernetes. A standalone cluster has one
that its master, its workers and all drivers know; it comes from a file and reaches the JVM in
another, since a command line is seen by every user of the machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from speck.analyzer import jvm
from speck.analyzer.masters import LOCAL, check_master, is_local, is_on_loopback, is_standalone
from speck.errors import InvalidError

_LOOPBACK = "127.0.0.1"


def start_session(
    master: str = LOCAL,
    *,
    memory: str = "1g",
    is_small: bool = False,
    partitions: int = 0,
    driver_host: str = _LOOPBACK,
    secret_file: Path | None = None,
    jars: Sequence[Path] = (),
) -> SparkSession:
    """Start a session at `master`; `memory` is the driver's heap (the only JVM if local).
    With `is_small` a local one gets `jvm.SMALL_HEAP` and options that suit few rows.

    The driver listens at `driver_host`; at 127.0.0.1 if the master does too. `secret_file` holds
    the secret of a standalone cluster. Raises InvalidError when it is missing. `jars`, or
    all jars of a folder among them, are for the driver and the executors.

    `partitions`: maximum number of partitions of a shuffle. 0: 16 for each core of this machine;
    Spark coalesces small ones, and sorting large ones needs little heap. The caller stops the
    session.
    """
    is_small = is_small and is_local(master)
    host = _LOOPBACK if is_on_loopback(check_master(master)) else driver_host
    options = _list_options(partitions or 16 * (os.cpu_count() or 2), in_memory=is_local(master))
    options |= {"spark.driver.memory": jvm.SMALL_HEAP if is_small else memory}
    options |= {"spark.driver.extraJavaOptions": " ".join(jvm.list_options(is_small=is_small))}
    options |= _find_s3(os.environ)
    if jars:
        options["spark.jars"] = ",".join(map(str, _list_jars(jars)))
    options |= {"spark.driver.host": host, "spark.driver.bindAddress": host}
    options |= {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    os.environ.setdefault("SPARK_LOCAL_IP", host)
    builder = SparkSession.builder.appName("speck analyze").master(master)
    for name, value in options.items():
        builder = builder.config(name, value)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.LAUNCHER_OPTIONS)
    with _give_secret(master, secret_file):
        spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _look_for_no_checksums(spark)
    return spark


def _list_options(partitions: int, *, in_memory: bool) -> dict[str, str]:
    """How an analysis runs, wherever it does; `in_memory`: all of it in this machine's memory."""
    scratch = Path(tempfile.gettempdir()) / f"speck-spark-{os.getuid()}"
    options = {
        # standard output is for results: the JVM writes to stderr only
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.ansi.enabled": "false",
        # an executor that does not see a file must fail, not leave its rows out
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.parquet.filterPushdown": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "64",
        "spark.sql.autoBroadcastJoinThreshold": str(32 << 20),
        # The rows of a task are written as one file, sorted by where they go: one file for each
        # place, joined at the end, takes longer, since a task of many small files has few rows.
        "spark.shuffle.sort.bypassMergeThreshold": "1",
        # code is compiled once for each text of it, of which an analysis has more than Spark's 100
        "spark.sql.codegen.cache.maxEntries": "2000",
    }
    if in_memory:
        # what is written for the next stage stays there: to compress it takes more than it saves
        options |= {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"}
    return options


def _look_for_no_checksums(spark: SparkSession) -> None:
    """Hadoop looks for a file of checksums beside each local file that it reads. The service writes
    none: Parquet's pages have their own. Its other class of local file systems looks for none
    either, but S3's client refuses it."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.FileSystem.getLocal(conf).setVerifyChecksum(False)


def _find_s3(env: Mapping[str, str]) -> dict[str, str]:
    """Where S3 is, as AWS's own tools are told. Spark itself hands the driver's `AWS_ACCESS_KEY_ID`
    and its secret to the executors: they are on no command line."""
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    options: dict[str, str] = {}
    if endpoint:
        options |= {"endpoint": endpoint, "path.style.access": "true"}
    if region or endpoint:
        options["endpoint.region"] = region or "us-east-1"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}


def _list_jars(places: Sequence[Path]) -> list[Path]:
    jars = [
        jar
        for place in places
        for jar in (sorted(place.glob("*.jar")) if place.is_dir() else [place])
    ]
    missing = [place for place in places if not place.exists()]
    if missing or not jars:
        named = ", ".join(map(str, missing or places))
        raise InvalidError(f"cannot find jars at {named}; correct SPECK_SPARK_JARS")
    return jars


@contextmanager
def _give_secret(master: str, secret_file: Path | None) -> Iterator[None]:
    """While the JVM starts, have it read the secret from a properties file that only we can
    read."""
    if not is_standalone(master):
        yield
        return
    try:
        secret = secret_file.read_text().strip() if secret_file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"cannot read the secret of {master}: {error}") from error
    if not secret or len(secret.split()) > 1:
        raise InvalidError(
            f"cannot analyse at {master} without its spark.authenticate.secret: name a file that"
            " holds it and nothing else"
        )
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(f"spark.authenticate.secret {secret}\n")
        file.flush()
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--properties-file {file.name} --load-spark-defaults pyspark-shell"
        )
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before
