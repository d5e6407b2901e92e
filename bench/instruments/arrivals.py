"""What comes out of jobs that read detections: what is lost, repeated, how late, how long silent.

Repeats are dropped by the records' stamps alone, as any reader of speck's links would; what is left
is judged by what the feed has published (`bench.detections.Log`). Times are of time.monotonic.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bench.detections import Log
from bench.instruments.checker import Stamps
from speck.binding import open_links
from speck.errors import TransientError
from speck.fog.publisher import find_broker
from speck.model.record import Record


class Arrivals(ABC):
    """The counting; no I/O. `covered` is how many detections are in what has come."""

    def __init__(self) -> None:
        self.covered = self.repeated = self.dropped = self.stray = 0
        self._stamps = Stamps()
        self._times: list[float] = []

    def hear(self, stamp: str | None, payload: bytes, now: float) -> None:
        """Take in one record."""
        if not self._stamps.take(stamp):
            self.dropped += 1
            return
        try:
            before = self.covered
            self._take(json.loads(payload), now)
        except (ValueError, KeyError, TypeError):
            self.stray += 1
            return
        if self.covered > before:
            self._times.append(now)

    def longest_silence(self, since: float, until: float) -> float:
        """Seconds of the longest pause within a time."""
        times = [since, *(at for at in self._times if since < at < until), until]
        return max(after - before for before, after in pairwise(times))

    @abstractmethod
    def _take(self, fields: dict[str, Any], now: float) -> None:
        """Take in the fields of a record that comes for the first time."""

    @abstractmethod
    def judge(self, logs: Sequence[Log]) -> tuple[int, int]:
        """How many detections of the logs were lost, and how many came more than once."""

    @abstractmethod
    def latencies(self, log: Log, since: float, until: float) -> list[float]:
        """Seconds from publication to arrival of what was published in a time; of a window, from
        that of the message that completes it."""


class Filtered(Arrivals):
    """Detections, and end marks, that were passed on."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[tuple[str, int], float] = {}

    def _take(self, fields: dict[str, Any], now: float) -> None:
        if fields.get("end"):
            return
        key = str(fields["stream"]), int(fields["id"])
        if key in self._at:
            self.repeated += 1
            return
        self._at[key] = now
        self.covered += 1

    def judge(self, logs: Sequence[Log]) -> tuple[int, int]:
        published = {key for log in logs for key in log.published}
        return len(published - self._at.keys()), self.repeated

    def latencies(self, log: Log, since: float, until: float) -> list[float]:
        return [
            self._at[key] - at
            for key, at in log.published.items()
            if since <= at <= until and key in self._at
        ]


class Windowed(Arrivals):
    """Results of windows; a later one of the same window counts more."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int], int] = {}
        self._at: dict[tuple[str, int], float] = {}

    def _take(self, fields: dict[str, Any], now: float) -> None:
        key = str(fields["sensor"]), int(fields["window_start_ms"])
        count, before = int(fields["count"]), self._counts.get(key, 0)
        if count <= before:
            self.repeated += 1
            return
        self._counts[key], self._at[key] = count, now
        self.covered += count - before

    def judge(self, logs: Sequence[Log]) -> tuple[int, int]:
        expected = count_windows(logs)
        keys = expected.keys() | self._counts.keys()
        differences = [expected[key] - self._counts.get(key, 0) for key in keys]
        more = sum(-each for each in differences if each < 0)
        return sum(each for each in differences if each > 0), self.repeated + more

    def latencies(self, log: Log, since: float, until: float) -> list[float]:
        late = []
        for (_, start), at in self._at.items():
            closed = log.closed_at(log.passed, start + log.window_ms)
            if closed is not None and since <= closed <= until:
                late.append(at - closed)
        return late


def count_windows(logs: Sequence[Log]) -> Counter[tuple[str, int]]:
    """How many detections were published of each sensor and window."""
    return Counter(
        (row.detection.sensor, row.detection.time_ms // log.window_ms * log.window_ms)
        for log in logs
        for row in log.rows
        if row.detection is not None
    )


class ArrivalReader:
    """Reads a topic under a session that must have been reserved, into `arrivals`."""

    def __init__(self, broker: str, topic: str, client_id: str, arrivals: Arrivals) -> None:
        self._arrivals, self._topic = arrivals, topic
        self._lock = threading.Lock()
        self._reader = open_links(*find_broker(broker)).reader(
            topic, client_id, self._hear, lambda _: self._hear(Record(None, b""))
        )

    @property
    def covered(self) -> int:
        """How many detections are in what has come."""
        return self._arrivals.covered

    def await_covered(self, count: int, timeout_s: float) -> None:
        """Wait until so many are. Raises TransientError."""
        deadline, pause = time.monotonic() + timeout_s, threading.Event()
        while self.covered < count:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"cannot see {count} detections in what comes on {self._topic}:"
                    f" {self.covered} in {timeout_s:g} s; see whether the job runs"
                )
            pause.wait(0.02)

    def __enter__(self) -> ArrivalReader:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.__exit__(*error)

    def _hear(self, record: Record) -> None:
        now = time.monotonic()
        with self._lock:
            self._arrivals.hear(record.stamp, record.payload, now)
