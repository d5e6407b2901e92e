"""What lies between a reader's place and the end of its log: records, or only offsets.

The marker of a transaction takes an offset, and so does a record that was compacted away. A reader
that commits behind the last record it has seen never reaches the end of such a log, and a drain by
offsets alone would not end. So where a short distance to the end does not change, the log itself
is read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from binders.kafka.client import Call
from binders.kafka.log_reader import LogReader
from binders.kafka.places import Log, Place, Places

_MOST = 1000
"""Offsets between which it is worth looking."""
_LOOK_S = 2.0
_AT_ONCE = 5

Distance = tuple[str, int, int]
"""A series, a place in it, and its end."""


class Tails:
    """Remembers which distances hold no records. Views that overlap may look twice."""

    def __init__(self) -> None:
        self._seen: frozenset[Distance] = frozenset()
        self._is_empty: Mapping[Distance, bool] = {}

    def skip(
        self, call: Call, places: Mapping[tuple[str, str], Places], logs: Mapping[str, Log]
    ) -> dict[tuple[str, str], Places]:
        """The places, moved to the end of their log where no record lies in between."""
        distances = {
            (log.series(part), place.offset, log.parts[part].end): (topic, part)
            for (_, topic), there in places.items()
            for log in (logs[topic],)
            for part, place in there.items()
            if 0 < log.parts[part].end - place.offset <= _MOST
        }
        self._look(call, distances, logs)
        return {
            (reader, topic): {
                part: self._moved(place, logs[topic], part) for part, place in there.items()
            }
            for (reader, topic), there in places.items()
        }

    def _look(
        self, call: Call, distances: Mapping[Distance, tuple[str, int]], logs: Mapping[str, Log]
    ) -> None:
        before, is_empty = self._seen, dict(self._is_empty)
        self._seen = frozenset(distances)
        stuck = [each for each in distances if each in before and each not in is_empty]
        for each in stuck[:_AT_ONCE]:
            (topic, part), (_, first, end) = distances[each], each
            first = max(first, logs[topic].parts[part].start)
            is_empty[each] = not _holds_records(call, topic, part, first, end)
        self._is_empty = {each: empty for each, empty in is_empty.items() if each in distances}

    def _moved(self, place: Place, log: Log, part: int) -> Place:
        end = log.parts[part].end
        is_over = self._is_empty.get((log.series(part), place.offset, end), False)
        return replace(place, offset=end) if is_over else place


def _holds_records(call: Call, topic: str, part: int, first: int, end: int) -> bool:
    """Whether a record lies between two offsets of a partition; True if that does not turn out in
    time."""
    deadline = min(call.deadline, time.monotonic() + _LOOK_S)
    with LogReader(call.client, topic, {part: first}, deadline) as reader:
        while reader.positions[part] < end and time.monotonic() < deadline:
            for message in reader.read(0.1):
                return bool(message.offset < end)
        return reader.positions[part] < end
