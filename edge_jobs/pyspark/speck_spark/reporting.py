"""What a job reports of itself to the runner of its site (docs/binders.md, "Process")."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

OBSERVED = "speck_"
"""What the names of Spark's observed metrics begin with that are counts of ours."""

_BUSY = "triggerExecution"
_LOG = ("walCommit", "commitOffsets")
_LATE = "late_dropped"


class Reporter:
    """The files of the runner; without a runner it reports nothing."""

    def __init__(self, interval_ms: int) -> None:
        self._report, self._request = _path("SPECK_REPORT"), _path("SPECK_REQUEST")
        self._start = int(os.environ.get("SPECK_START", "0"))
        self._interval_ms = interval_ms

    def read_request(self) -> int:
        """The number of the last checkpoint that was asked for."""
        if self._request is not None:
            with suppress(OSError, ValueError):
                return int(self._request.read_text())
        return 0

    def write(self, **content: Any) -> None:
        """A full disk keeps the last report."""
        if self._report is None:
            return
        about = {"start": self._start, "interval_ms": self._interval_ms, **content}
        fresh = self._report.with_suffix(".new")
        with suppress(OSError):
            fresh.write_text(json.dumps(about))
            fresh.rename(self._report)


class Requests:
    """Which checkpoint on request is complete: one is once a trigger has ended that began after the
    request, so that it holds all that had come by then."""

    def __init__(self) -> None:
        self.complete = 0
        self._asked = 0
        self._waiting: list[tuple[int, int]] = []
        self._last = ""

    def look(self, asked: int, recent: Sequence[Mapping[str, Any]], *, is_active: bool) -> None:
        """`asked` is the number of the last request, `recent` are the progress reports of triggers
        that have ended, `is_active` says whether one runs. Read these in the order of `asked`,
        `is_active`, `recent`: then the trigger that runs is the only one of which it is not known
        whether it began before the request."""
        ended = self._count_new(recent)
        self._waiting = [(number, left - ended) for number, left in self._waiting]
        self.complete = max(
            [self.complete, *(number for number, left in self._waiting if left <= 0)]
        )
        self._waiting = [each for each in self._waiting if each[1] > 0]
        if asked > self._asked:
            self._asked = asked
            self._waiting.append((asked, 2 if is_active else 1))

    def _count_new(self, recent: Sequence[Mapping[str, Any]]) -> int:
        times = [str(each["timestamp"]) for each in recent]
        seen = times.index(self._last) + 1 if self._last in times else 0
        self._last = times[-1] if times else self._last
        return len(times) - seen


class Progress:
    """What the batches of a query have done since its start. `busy_ms` is the time of triggers that
    had a batch, `idle_ms` all other time up to the end of the last trigger: a batch that runs is
    counted once it has ended, and neither ever falls. `counters`: rows that Spark's watermark has
    dropped, and what our operators have counted."""

    def __init__(self) -> None:
        self.last_batch = -1
        self.records_in = self.busy_ms = self.idle_ms = self.log_ms = 0
        self.counters = Counter({_LATE: 0})
        self.state_rows = self.state_bytes = 0
        self._began_ms: float | None = None

    def add(self, recent: Sequence[Mapping[str, Any]]) -> bool:
        """Add those of the query's progress reports that are new; returns whether there are
        any. A trigger without data reports the batch that comes next, with no rows."""
        count = 0
        for each in recent:
            if each["batchId"] > self.last_batch and each["durationMs"].get("addBatch") is not None:
                self.last_batch = each["batchId"]
                self.records_in += each["numInputRows"]
                self.busy_ms += each["durationMs"].get(_BUSY, 0)
                self.log_ms = sum(each["durationMs"].get(name, 0) for name in _LOG)
                operators = each.get("stateOperators", ())
                late = sum(one["numRowsDroppedByWatermark"] for one in operators)
                self.counters[_LATE] += late
                self._count(each.get("observedMetrics", {}))
                self.state_rows = sum(one["numRowsTotal"] for one in operators)
                self.state_bytes = sum(one["memoryUsedBytes"] for one in operators)
                count += 1
        for each in recent:
            self._pass_time(each)
        return count > 0

    def _count(self, observed: Mapping[str, Mapping[str, int | None]]) -> None:
        """A batch without rows has no sums."""
        for name, counts in observed.items():
            if name.startswith(OBSERVED):
                for counter, count in counts.items():
                    self.counters[counter] += count or 0

    def _pass_time(self, trigger: Mapping[str, Any]) -> None:
        # Python 3.10 reads no Z
        at = datetime.fromisoformat(trigger["timestamp"].replace("Z", "+00:00"))
        at_ms = 1000 * at.timestamp()
        self._began_ms = at_ms if self._began_ms is None else self._began_ms
        lived_ms = at_ms + trigger["durationMs"].get(_BUSY, 0) - self._began_ms
        self.idle_ms = max(self.idle_ms, int(lived_ms) - self.busy_ms)


def read_links(text: str) -> dict[str, str]:
    """The connector's counts, by `source.<name>` and `sink.<name>`."""
    return dict(line.partition("=")[::2] for line in text.splitlines())


def describe_links(links: Mapping[str, str]) -> dict[str, Any]:
    """The part of a report that follows from a job's links."""

    def count(name: str) -> int:
        return int(links.get(name, 0))

    described: dict[str, Any] = {}
    problems = [links.get(f"{end}.linkProblem", "") for end in ("source", "sink")]
    described["problem"] = next((each for each in problems if each), None)
    if "source.connected" in links:
        described["connected"] = links["source.connected"] == "1"
        described["bytes_in"] = count("source.bytes")
        described["dropped"] = count("source.messagesDropped")
        described["lost"] = count("source.messagesLost")
    if "sink.records" in links:
        described["records_out"] = count("sink.records")
        described["bytes_out"] = count("sink.bytes")
        described["left_out"] = count("sink.recordsUndeliverable")
    return {name: value for name, value in described.items() if value is not None}


def _path(name: str) -> Path | None:
    return Path(os.environ[name]) if name in os.environ else None
