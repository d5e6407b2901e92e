"""A Spark application that stays up and answers one request after the other.

Requests come as lines of JSON on standard input. The answers are lines of JSON on what was standard
output: `{"step": ...}` for each step that begins, and at the end `{"state": "done"}` or
`{"state": "failed", "error": ...}`. The process ends when standard input is closed.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from speck.analyzer.jvm import write_archive
from speck.analyzer.request import STARTING, Request, answer, describe_failure
from speck.errors import SpeckError
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NICENESS = 10
"""Of the process and its JVM: the service answers first."""


def serve(start: Callable[[], SparkSession]) -> None:
    """Answer requests until standard input is closed; `start` is called for the first one."""
    os.nice(NICENESS)
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    requests: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()

    def send(message: JsonObject) -> None:
        os.write(out, json.dumps(message).encode() + b"\n")

    def report(step: str) -> None:
        send({"step": step})

    spark: SparkSession | None = None
    is_first = True
    while True:
        message = requests.get()
        try:
            request = Request.from_json(message)
            if spark is None:
                report(STARTING)
                spark = start()
            answer(spark, request, report)
        except Exception as error:
            if not isinstance(error, SpeckError):
                traceback.print_exc()
            send({"state": "failed", "error": describe_failure(error)})
        else:
            send({"state": "done"})
            if is_first:
                write_archive(spark)
                is_first = False


def _read_requests(requests: queue.SimpleQueue[JsonObject]) -> None:
    """Queue the requests; at their end exit with the JVM, even during an analysis."""
    rest = b""
    while piece := os.read(0, 65536):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            requests.put(json.loads(line))
    os._exit(0)
