"""From which record on a reader reads its log. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka.errors import LogTruncationError, OffsetOutOfRangeError

from speck_link.arguments import Link
from speck_link.kafka.topic import Extent, LinkTopic, term_of
from speck_link.taken import Entry, Until, find_position
from speck_link.transport import Place, Position

_EVER = 1 << 62


@dataclass(frozen=True)
class ReadingRange:
    """Which part of a log is read: from where this start has `reached` it; else from `position`,
    where the state ends (if it has `read_before`), but not before what an earlier reader has
    `taken`; up to `until`."""

    position: Position
    read_before: bool
    taken: tuple[Entry, ...]
    until: Until
    reached: Position = field(default_factory=dict)

    def find_end(self, series: str) -> int:
        """The offset before which a part of the log is read."""
        return _EVER if self.until.is_ever else self.until.find_position(series)


def find_starts(
    link: Link,
    topic: LinkTopic,
    reading: ReadingRange,
    places: Mapping[int, Place],
    extents: Mapping[int, Extent],
) -> dict[int, Place]:
    """The place of the first record to read, by partition.

    That is where the reader has come to; else the place that the broker keeps for it. If there is
    none, it has been lost (or was never made): then the end of the log, for a reader that has never
    read it; the beginning for one that has, since nothing tells what it has not seen, and repeats
    are recognised by their numbers. Where the log has another extent than all of them think, it was
    cut, or old records were deleted: then the first that there is. But if the term of the last
    record is known, the broker is asked where the log was cut, also if it has grown past the place
    since: see `go_back`.
    """
    starts = {}
    for part in topic.parts:
        first, end = extents[part].first, extents[part].end
        series = topic.series(part)
        start = reading.reached.get(series)  # from what was handed over on, unless it was cut since
        if start is None:
            own = _find_own(reading, series, places, part, extents[part])
            start = max(own, Place(find_position(reading.taken, series)), key=lambda it: it.offset)
        is_asked = start.term is not None
        if start.offset < first or (start.offset > end and not is_asked):
            print(
                f"{link} has records {first} to {end} in partition {part}, the reader"
                f" {link.client_id} was at {start.offset}: it goes on with the first that there is",
                file=sys.stderr,
            )
            start = Place(first)
        starts[part] = start
    return starts


def _find_own(
    reading: ReadingRange, series: str, places: Mapping[int, Place], part: int, extent: Extent
) -> Place:
    is_known = bool(places) or reading.read_before or bool(reading.taken)
    otherwise = Place(extent.first if is_known else extent.end)
    return reading.position.get(series, places.get(part, otherwise))


def go_back(reached: Position, topic: LinkTopic, problem: BaseException | None) -> Position:
    """Where the next connection begins after one that has ended. If the log was cut below what it
    has `reached`, that is where it was cut: what comes from there on has not been read, whatever
    its offsets. Where nobody knows that, it is the beginning. A place that is out of range for
    another reason has no term any more, so that the log's extent decides."""
    back = dict(reached)
    if isinstance(problem, LogTruncationError):
        for tp, end in problem.divergent_offsets.items():
            cut = Place(0) if end is None else Place(end.offset, term_of(end))
            series = topic.series(tp.partition)
            if series in back and cut.offset < back[series].offset:
                back[series] = cut
    elif isinstance(problem, OffsetOutOfRangeError):
        for tp in dict(*problem.args):
            series = topic.series(tp.partition)
            if series in back:
                back[series] = Place(back[series].offset)
    return back
