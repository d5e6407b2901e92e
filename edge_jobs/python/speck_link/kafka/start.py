"""From which record on a reader reads its log. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from speck_link.arguments import Link
from speck_link.kafka.topic import Extent, LinkTopic
from speck_link.taken import Entry, Until, find_position
from speck_link.transport import Position

_EVER = 1 << 62


@dataclass(frozen=True)
class ReadingRange:
    """Which part of a log is read: from `position`, where the reader has come to, or its state
    ends (if it has `read_before`); never before what an earlier reader has `taken`; up to
    `until`."""

    position: Position
    read_before: bool
    taken: tuple[Entry, ...]
    until: Until

    def find_end(self, series: str) -> int:
        """The offset before which a part of the log is read."""
        return _EVER if self.until.is_ever else self.until.find_position(series)


def find_starts(
    link: Link,
    topic: LinkTopic,
    reading: ReadingRange,
    places: Mapping[int, int],
    extents: Mapping[int, Extent],
) -> dict[int, int]:
    """The offset of the first record to read, by partition.

    That is where the reader has come to; else the place that the broker keeps for it. If there is
    none, it has been lost (or was never made): then the end of the log, for a reader that has never
    read it; the beginning for one that has, since nothing tells what it has not seen, and repeats
    are recognised by their numbers. Where the log has another extent than all of them think, it was
    cut, or old records were deleted: then the first that there is.
    """
    is_known = bool(places) or reading.read_before or bool(reading.taken)
    starts = {}
    for part in topic.parts:
        first, end = extents[part].first, extents[part].end
        series = topic.series(part)
        otherwise = places.get(part, first if is_known else end)
        wanted = reading.position.get(series, otherwise)
        start = max(wanted, find_position(reading.taken, series))
        if not first <= start <= end:
            print(
                f"{link} has records {first} to {end} in partition {part}, the reader"
                f" {link.client_id} was at {start}: it goes on with the first that there is",
                file=sys.stderr,
            )
            start = first
        starts[part] = start
    return starts
