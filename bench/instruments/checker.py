"""Counts at the far end of an experiment: what is missing, repeated, reordered, stray, silent.

Repeats are dropped by the connector's properties alone, as any reader of speck's links would;
what is left is judged by the publisher's own numbers.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from speck.binding import open_links
from speck.errors import TransientError
from speck.fog.publisher import find_broker
from speck.model.record import Record

_SILENCE_S = 0.02
"""Shorter pauses between two messages are not written down."""


@dataclass(frozen=True, slots=True)
class Count:
    """What came of numbers 1..published; `first_lost` names at most twenty of them.

    `dropped`: repeats that the properties told. `repeated`, `reordered`, `stray`: by the
    publisher's own numbers. `miscounted`: records whose `count` does not follow the one before
    of its key: state was lost, or was counted twice.
    """

    published: int
    lost: int
    repeated: int
    reordered: int
    stray: int
    dropped: int
    miscounted: int
    first_lost: tuple[int, ...] = ()
    first_repeated: tuple[int, ...] = ()


@dataclass(slots=True)
class Taken:
    """Numbers of one producer and epoch: all up to `up_to`, and some above it."""

    up_to: int = 0
    above: set[int] = field(default_factory=set)

    def take(self, number: int) -> bool:
        """Whether it is new."""
        if number <= self.up_to or number in self.above:
            return False
        self.above.add(number)
        while self.up_to + 1 in self.above:
            self.up_to += 1
            self.above.discard(self.up_to)
        return True


class Stamps:
    """The stamps `<producer>/<epoch>/<number>` that have come."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, Taken] = defaultdict(Taken)

    def take(self, stamp: str | None) -> bool:
        """Whether a record comes for the first time; one without a stamp always does."""
        if stamp is None:
            return True
        series, _, number = stamp.rpartition("/")
        return self._taken[series].take(int(number))


class Tally:
    """The counting itself; no I/O. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.dropped = self.reordered = self.stray = self.repeated = self.miscounted = 0
        self.last = 0.0
        self.silences: list[tuple[float, float]] = []
        self.stamps = Stamps()
        self._bitmap = bytearray(1 << 16)
        self._repeated: list[int] = []
        self.highest = 0
        self._counts: dict[str, int] = {}
        self.distinct = 0

    def hear(self, stamp: str | None, payload: bytes, now: float) -> None:
        """Take in one message; `stamp` is the property `<producer>/<epoch>/<number>`."""
        if not self.stamps.take(stamp):
            self.dropped += 1
            return
        try:
            record = json.loads(payload)
            own = int(record["n"])
        except (ValueError, KeyError, TypeError):
            self.stray += 1
            return
        if self._is_new(own):
            self._pause(now)
        if "count" in record:
            key = str(record.get("k"))
            self.miscounted += record["count"] != self._counts.get(key, 0) + 1
            self._counts[key] = record["count"]

    def _pause(self, now: float) -> None:
        """Something new has come: write down the silence before it."""
        if now - self.last > _SILENCE_S and self.last:
            self.silences.append((self.last, now))
        self.last = now

    def _is_new(self, number: int) -> bool:
        if number < 1:
            self.stray += 1
            return False
        while number >= len(self._bitmap):
            self._bitmap.extend(bytes(len(self._bitmap)))
        if self._bitmap[number]:
            self.repeated += 1
            self._repeated.append(number)
            return False
        self._bitmap[number] = 1
        self.distinct += 1
        if number < self.highest:
            self.reordered += 1
        self.highest = max(self.highest, number)
        return True

    def missing(self, published: int) -> list[int]:
        """Which of 1..published have not come."""
        bitmap = self._bitmap
        return [n for n in range(1, published + 1) if n >= len(bitmap) or not bitmap[n]]

    def count(self, published: int) -> Count:
        """The result for numbers 1..published; anything above is stray."""
        lost = self.missing(published)
        above = self._count_above(published, len(lost))
        return Count(
            published,
            len(lost),
            self.repeated,
            self.reordered,
            self.stray + above,
            self.dropped,
            self.miscounted,
            tuple(lost[:20]),
            tuple(self._repeated[:20]),
        )

    def _count_above(self, published: int, lost: int) -> int:
        """How many numbers above `published` have come, of which `lost` have not."""
        return sum(self._bitmap[published + 1 :])


class Checker:
    """Reads `topic` under the session `client_id`, which must have been reserved, and counts."""

    def __init__(self, broker: str, topic: str, client_id: str, tally: Tally | None = None) -> None:
        self._tally = tally or Tally()
        self._lock = threading.Lock()
        self._topic = topic
        self._reader = open_links(*find_broker(broker)).reader(
            topic, client_id, self._hear, lambda _: self._hear(Record(None, b""))
        )

    @property
    def distinct(self) -> int:
        """How many different numbers have come."""
        return self._tally.distinct

    def count(self, published: int) -> Count:
        """The result so far."""
        with self._lock:
            return self._tally.count(published)

    def missing(self, published: int) -> list[int]:
        """Which of 1..published have not come."""
        with self._lock:
            return self._tally.missing(published)

    def await_all(self, published: int, timeout_s: float = 120.0, idle_s: float = 30.0) -> Count:
        """Wait until 1..published have come, or nothing has come for `idle_s`, or `timeout_s`
        are over; then count. What is lost is in the result."""
        pause = threading.Event()
        deadline = time.monotonic() + timeout_s
        before, since = -1, time.monotonic()
        while (now := time.monotonic()) < deadline and self.distinct < published:
            if self.distinct != before:
                before, since = self.distinct, now
            if now - since > idle_s:
                break
            pause.wait(0.05)
        return self.count(published)

    @property
    def highest(self) -> int:
        """The highest number that has come."""
        return self._tally.highest

    def await_past(self, number: int, timeout_s: float = 240.0) -> None:
        """Wait until a number above `number` has come. Raises TransientError."""
        pause = threading.Event()
        deadline = time.monotonic() + timeout_s
        while self.highest <= number:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"cannot see a number above {number} on {self._topic} in {timeout_s:g} s;"
                    " see whether the jobs run"
                )
            pause.wait(0.02)

    def await_number(self, number: int, timeout_s: float = 240.0) -> None:
        """Wait until so many different numbers have come. Raises TransientError."""
        pause = threading.Event()
        deadline = time.monotonic() + timeout_s
        while self.distinct < number:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"cannot see {number} messages on {self._topic}: {self.distinct} have come"
                    f" in {timeout_s:g} s; see whether the jobs run"
                )
            pause.wait(0.02)

    def longest_silence(
        self, since: float, until: float | None = None, *, cut: bool = False
    ) -> float:
        """Seconds of the longest pause between two records that come for the first time and that
        overlaps the time from `since` to `until` (of time.monotonic; None: now). With `cut` only
        what lies after `since` counts."""
        now = time.monotonic()
        end = now if until is None else until
        with self._lock:
            pauses = list(self._tally.silences)
            last = self._tally.last
        if last and end > last:
            pauses.append((last, end))
        first = since if cut else 0.0
        overlaps = (b - max(a, first) for a, b in pauses if b > since and a < end)
        return max(overlaps, default=_SILENCE_S)

    def silences(self, since: float, until: float) -> Sequence[float]:
        """Seconds of all pauses that lie within a time."""
        with self._lock:
            return [b - a for a, b in self._tally.silences if a >= since and b <= until]

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *error: Any) -> None:
        self._reader.__exit__(*error)

    def _hear(self, record: Record) -> None:
        """Take in a record; a message that cannot be split counts as a stray one."""
        now = time.monotonic()
        with self._lock:
            self._tally.hear(record.stamp, record.payload, now)
