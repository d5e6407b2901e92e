"""The sink of a job that has ended, alone: it sends what its broker has forgotten since then, and
the program ends when the broker has all of it. There is a JVM with the connector, but no session of
Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.java_gateway import launch_gateway
from speck_spark.arguments import Arguments


def resend(words: Sequence[str]) -> None:
    """`words` are the arguments of the job, whose state is in `SPECK_STATE_DIR`. Raises
    ArgumentFaultError and Py4JJavaError."""
    checkpoint = Path(os.environ["SPECK_STATE_DIR"]).resolve() / "query"
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        links = gateway.jvm.io.speck.spark.OpenLinks
        links.resend(str(checkpoint), Arguments(words).contract)
    finally:
        gateway.shutdown()


def main() -> None:
    """Do so with the arguments of this program."""
    resend(sys.argv[1:])
