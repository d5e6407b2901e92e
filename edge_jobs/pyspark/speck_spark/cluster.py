"""What a job needs where Spark is a standalone cluster: its secret, and executors that see the
job's state."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from pyspark.sql import SparkSession

_SECRET = "SPECK_SPARK_SECRET"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


class NotSharedError(RuntimeError):
    """The executors do not see the job's state; the message begins with "cannot"."""


@contextmanager
def hand_over_secret() -> Iterator[None]:
    """While a session starts in the `with`, let it read the cluster's secret from a file of our
    own: command lines are seen by every user."""
    secret = os.environ.pop(_SECRET, None)
    if secret is None:
        yield
        return
    before = os.environ[_ARGUMENTS]
    with NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(f"spark.authenticate.secret {secret}\n")
        file.flush()
        words = ["--properties-file", file.name, "--load-spark-defaults", *shlex.split(before)]
        os.environ[_ARGUMENTS] = shlex.join(words)
        try:
            yield
        finally:
            os.environ[_ARGUMENTS] = before


def require_shared(spark: SparkSession, folder: Path) -> None:
    """Raises NotSharedError if executors of a cluster write files of `folder` elsewhere: they read
    what a link has brought, and keep the state of a query, under it."""
    master = spark.sparkContext.master
    if master is None or master.startswith("local"):
        return
    probe = folder / f".probe-{secrets.token_hex(6)}"
    try:
        spark.range(1, numPartitions=1).write.csv(probe.as_uri())
        is_shared = any(probe.glob("part-*"))
    except Exception as error:
        raise NotSharedError(_explain(master, folder)) from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if not is_shared:
        raise NotSharedError(_explain(master, folder))


def _explain(master: str, folder: Path) -> str:
    return (
        f"cannot run at {master}: its workers cannot write to {folder}; keep the runner's state"
        " folder on storage that they mount under the same path (the site's state_uri)"
    )
