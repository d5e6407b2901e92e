"""A Spark application that stays up and answers one request after the other.

Requests come as lines of JSON on standard input. The answers are lines of JSON on what was standard
output: `{"step": ...}` for each step that begins, and at the end `{"state": "done"}` or
`{"state": "failed", "error": ...}`, or `{"state": "outgrown"}` if the request reads more rows than
the JVM holds, which the first request chose. A request to warm up has no answer. The process ends
when standard input is closed.

The first JVM of an installation leaves an archive of classes for those that come (`jvm`). That
takes some 450 MB which it never gives back, so it is replaced by one that starts from the archive,
while nobody waits.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from speck.analyzer import warm_up
from speck.analyzer.jvm import end_jvm, write_archive
from speck.analyzer.request import (
    OUTGROWN,
    STARTING,
    WARM_UP,
    AnalyzerRequest,
    answer,
    describe_failure,
    is_small,
)
from speck.errors import SpeckError
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUIET_S = 30.0
"""For so long nobody has asked when the archive of classes is written: the JVM stands still."""


class Start(Protocol):
    """Starts Spark, for few rows or any number."""

    def __call__(self, *, is_small: bool) -> SparkSession: ...


def serve(start: Start) -> None:
    """Answer requests until standard input is closed; `start` is called for the first one."""
    _give_way()
    out = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not get between the answers
    requests: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()

    def send(message: JsonObject) -> None:
        os.write(out, json.dumps(message).encode() + b"\n")

    def is_awaited() -> bool:
        return not requests.empty()

    application = _Application(start, send)
    while True:
        try:
            message = requests.get(timeout=QUIET_S if application.lacks_archive else None)
        except queue.Empty:
            application.leave_archive(is_awaited)
            continue
        if message == WARM_UP:
            application.warm_up(is_awaited)
        else:
            application.answer(message)


class _Application:
    def __init__(self, start: Start, send: Callable[[JsonObject], None]) -> None:
        self._start = start
        self._send = send
        self._spark: SparkSession | None = None
        self._is_small = False
        self._has_archive = False

    @property
    def lacks_archive(self) -> bool:
        """Whether the JVM runs and has not left its archive of classes yet."""
        return self._spark is not None and not self._has_archive

    def answer(self, message: JsonObject) -> None:
        try:
            request = AnalyzerRequest.from_json(message)
            if self._spark is None:
                self._report(STARTING)
            small = is_small(request)
            if self._is_small and not small:
                self._send({"state": OUTGROWN})
                return
            answer(self._take_spark(small), request, self._report)
        except Exception as error:
            if not isinstance(error, SpeckError):
                traceback.print_exc()
            self._send({"state": "failed", "error": describe_failure(error)})
        else:
            self._send({"state": "done"})

    def warm_up(self, is_awaited: Callable[[], bool]) -> None:
        """Get ready for a small request, until one waits."""
        if self._spark is not None:
            return
        try:
            warm_up.analyse_samples(self._take_spark(True), is_awaited)
        except Exception:  # whoever asks for an analysis is told
            traceback.print_exc()
        else:
            self.leave_archive(is_awaited)

    def leave_archive(self, is_awaited: Callable[[], bool]) -> None:
        """Write the archive of classes, unless there is one or a request waits; then replace the
        small JVM that has written it."""
        if self._spark is None or is_awaited():
            return
        self._has_archive = True
        if write_archive(self._spark) and self._is_small:
            end_jvm(self._spark)
            self._spark = None
            self.warm_up(is_awaited)

    def _report(self, step: str) -> None:
        self._send({"step": step})

    def _take_spark(self, small: bool) -> SparkSession:
        if self._spark is None:
            self._spark, self._is_small = self._start(is_small=small), small
        return self._spark


def _give_way() -> None:
    """Threads of a batch preempt nobody who wakes up: the service answers first. A lower priority
    would starve an analysis on a busy machine, and only root could raise it again."""
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _read_requests(requests: queue.SimpleQueue[JsonObject]) -> None:
    """Queue the requests; at their end exit with the JVM, even during an analysis."""
    rest = b""
    while piece := os.read(0, 65536):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            requests.put(json.loads(line))
    os._exit(0)
