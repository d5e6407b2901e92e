"""What a broker says that it has of a sink's records; twins of the connector's SentNumber and
SeenNumbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from speck_link.numbers import NumberRanges


class SentRecords(Protocol):
    """What a broker has."""

    may_have_gaps: bool
    """Whether it may lack some that were sent before others that it has: it has refused them, and
    the connection ended before they were sent again."""

    def covers(self, producer: str, epoch: int, first: int, last: int) -> bool:
        """Whether it has all records of an epoch from one number to another."""

    def reaches(self, producer: str, epoch: int, number: int) -> bool:
        """Whether it has the record of that number of an epoch, or a later one of the epoch."""


@dataclass(frozen=True)
class SentNumber:
    """The last number of a sink that a broker has: a sink announces it when the broker has all
    before it."""

    producer: str
    epoch: int
    number: int
    may_have_gaps = False

    def covers(self, producer: str, epoch: int, first: int, last: int) -> bool:
        return self.reaches(producer, epoch, last)

    def reaches(self, producer: str, epoch: int, number: int) -> bool:
        return (producer, epoch) == (self.producer, self.epoch) and number <= self.number


class _SeenRanges(NumberRanges):
    """No hole is closed: its numbers would count as sent."""

    __slots__ = ()
    most = 1 << 62


class SeenNumbers:
    """The numbers of one producer that were seen in a piece of a log. What was not seen may lie
    before the piece; or it is missing, also where later numbers were seen."""

    may_have_gaps = True

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._epochs: dict[int, NumberRanges] = {}

    def add(self, seen: SentNumber) -> None:
        """Add the number of a stamp, which may be another producer's."""
        if seen.producer == self._producer:
            self._epochs.setdefault(seen.epoch, _SeenRanges()).add(seen.number)

    def __bool__(self) -> bool:
        return bool(self._epochs)

    def reach_back_to(self, oldest: SentNumber) -> bool:
        """Whether a record was seen that was sent no later than that one."""
        seen = self._epochs.get(oldest.epoch)
        is_there = seen is not None and seen.ranges[0][0] <= oldest.number
        return is_there or any(epoch < oldest.epoch for epoch in self._epochs)

    def covers(self, producer: str, epoch: int, first: int, last: int) -> bool:
        seen = self._find(producer, epoch)
        return seen is not None and seen.include(first, last)

    def reaches(self, producer: str, epoch: int, number: int) -> bool:
        seen = self._find(producer, epoch)
        return seen is not None and seen.highest >= number

    def _find(self, producer: str, epoch: int) -> NumberRanges | None:
        return self._epochs.get(epoch) if producer == self._producer else None
