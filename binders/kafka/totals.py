"""A cluster's figures as far as places and logs show them. Kafka's own counters are at JMX, which
is no part of its protocol."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from binders.kafka.places import Log, Places
from speck.model.measurement import BrokerMeasures

_Counts = dict[tuple[str, str], int]
"""By reader (none: the log itself) and series of a partition."""


class Totals:
    """Adds up how far the ends of links and the places of readers move: sums that only grow while
    this process runs. Markers of transactions count as messages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: _Counts = {}
        self._reached: _Counts = {}
        self._deleted: _Counts = {}
        self._in = self._out = self._dropped = 0

    def measure(
        self, places: Mapping[tuple[str, str], Places], logs: Mapping[str, Log]
    ) -> BrokerMeasures:
        """The sums with what has come since the last call, and what waits for readers now.

        `messages_in` begins with all that the logs have ever held, `messages_out` with nothing: it
        is not known how much of what lies before a place its reader has read. What was deleted
        before a reader took it was dropped.
        """
        reached: _Counts = {}
        deleted: _Counts = {}
        queued = 0
        for (reader, topic), there in places.items():
            for part, extent in logs[topic].parts.items():
                key = reader, logs[topic].series(part)
                offset = there[part].offset if part in there else 0
                reached[key] = max(offset, extent.start)
                deleted[key] = max(0, extent.start - offset)
                queued += max(0, extent.end - reached[key])
        ends = {
            ("", log.series(part)): extent.end
            for log in logs.values()
            for part, extent in log.parts.items()
        }
        with self._lock:
            dropped = sum(max(0, n - self._deleted.get(key, 0)) for key, n in deleted.items())
            passed = sum(max(0, n - self._reached.get(key, n)) for key, n in reached.items())
            self._in += sum(max(0, n - self._ends.get(key, 0)) for key, n in ends.items())
            self._dropped += dropped
            self._out += max(0, passed - dropped)
            self._deleted = deleted
            self._reached = _highest(self._reached, reached)
            self._ends = _highest(self._ends, ends)
            return BrokerMeasures(
                messages_in=self._in,
                messages_out=self._out,
                dropped=self._dropped,
                queued=queued,
            )


def _highest(before: _Counts, now: _Counts) -> _Counts:
    """Calls may overlap, so that an older one may end last."""
    return {key: max(number, before.get(key, 0)) for key, number in now.items()}
