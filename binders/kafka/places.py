"""Logs, and the places of readers in them, as positions. Pure.

The series of a position is a partition of one incarnation of a topic, `<topic id>/<partition>`: a
topic that is deleted and made anew has another id. Its number is an offset, that of the next record
to be read, which is the count of all before it. The same strings stand in `--taken` and `--until`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from speck.model.observation import Position, Taken

EPOCH = 0
MOST_METADATA = 4000
"""Bytes beside an offset; a broker takes 4096 (`offset.metadata.max.bytes`)."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What there is of a partition: the offset of its oldest record, and that behind its last. And
    its leader's epoch, if the cluster says it."""

    start: int
    end: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """A topic: its id as Kafka writes it, and its partitions by number."""

    id: str
    parts: Mapping[int, Extent]

    def series(self, part: int) -> str:
        return f"{self.id}/{part}"

    @property
    def end(self) -> Position:
        return {(self.series(part), EPOCH): extent.end for part, extent in self.parts.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """A committed offset with what its reader wrote beside it, and the leader epoch of the last
    record before it, by which the reader notices that the log was cut there."""

    offset: int
    report: Mapping[str, Any] = field(default_factory=dict)
    epoch: int | None = None

    def is_of(self, log: Log) -> bool:
        """Whether it is not known to belong to an earlier topic of that name."""
        return bool(self.report.get("id", log.id) == log.id)


def epoch_of(answer: Any) -> int | None:
    """The leader epoch beside an offset of Kafka's client; None where there is none."""
    epoch = answer.leader_epoch
    return epoch if isinstance(epoch, int) and epoch >= 0 else None


Places = Mapping[int, Place]
"""Of one group in one topic, by partition."""


def read_report(metadata: str | None) -> Mapping[str, Any]:
    """What stands beside an offset; empty if it is not ours."""
    try:
        report = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return report if isinstance(report, dict) and report.get("v") == 1 else {}


def write_report(**values: Any) -> str:
    """What is to stand beside an offset."""
    return json.dumps({"v": 1, **values}, separators=(",", ":"))


def find_there(places: Places, log: Log) -> Places | None:
    """The places in a log as it is now; None if there are none: they belong to an earlier topic, or
    lie behind the end of a log that was cut."""
    there = {
        part: place for part, place in places.items() if part in log.parts and place.is_of(log)
    }
    if not there or any(place.offset > log.parts[part].end for part, place in there.items()):
        return None
    return there


def position_of(places: Places, log: Log) -> Position:
    """The places as a position."""
    return {(log.series(part), EPOCH): place.offset for part, place in places.items()}


def begin(log: Log, at: Position | None) -> dict[int, int]:
    """The offsets at which a new place begins: at a position as far as the log has it, at the end
    without one. A part that the position does not name is read from its beginning."""
    if at is None:
        return {part: extent.end for part, extent in log.parts.items()}
    wanted = {part: at.get((log.series(part), EPOCH), 0) for part in log.parts}
    return {part: offset if offset <= log.parts[part].end else 0 for part, offset in wanted.items()}


def count(value: object) -> int:
    """A count of a report; 0 if it is none."""
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else 0


def taken_of(places: Mapping[str, Places], logs: Mapping[str, Log]) -> Taken:
    """What a reader has taken, by topic. What was deleted before it was taken is missing, and will
    not come; so are the holes in its producers' numbers that the reader itself reports."""
    taken: dict[str, dict[int, int]] = {}
    missing: dict[str, dict[int, int]] = {}
    reports: list[Mapping[str, Any]] = []
    for topic, there in places.items():
        log = logs[topic]
        reports += [place.report for place in there.values() if "checkpoint" in place.report]
        for part, extent in log.parts.items():
            offset = there[part].offset if part in there else 0
            taken[log.series(part)] = {EPOCH: offset}
            if (deleted := extent.start - offset) > 0:
                missing[log.series(part)] = {EPOCH: deleted}
    for report in reports:
        missing.update(_read_holes(report.get("missing")))
    total = sum(numbers[EPOCH] for numbers in taken.values())
    newest = max(reports, key=lambda report: count(report.get("checkpoint")), default={})
    return Taken(
        checkpoint=count(newest.get("checkpoint", total)),
        taken=taken,
        missing=missing,
        messages=sum(count(each.get("messages")) for each in reports) if reports else total,
        at_ms=count(newest.get("at", total)),
        dropped=sum(count(each.get("dropped")) for each in reports),
    )


def _read_holes(holes: object) -> dict[str, dict[int, int]]:
    if not isinstance(holes, dict):
        return {}
    return {
        producer: {int(epoch): count(number) for epoch, number in epochs.items() if epoch.isdigit()}
        for producer, epochs in holes.items()
        if isinstance(epochs, dict)
    }
