"""The numbers taken from one epoch of one producer, and from its last few epochs.

A twin of the connector's NumberRanges and ProducerNumbers (edge_jobs/mqtt-connector, protocol).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

MAX_RANGES = 1000
MAX_EPOCHS = 4

Range = tuple[int, int]


class NumberRanges:
    """Disjoint, rising ranges that do not touch; mostly there is one.

    Past `most` of them the oldest hole is closed: its numbers count as lost.
    """

    __slots__ = ("away", "lost", "ranges", "start")
    most = MAX_RANGES

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []
        self.lost = 0
        self.start: int | None = None
        """Holes below it are none: these numbers were not for this reader."""
        self.away = False
        """The next number above the highest begins anew."""

    def leave(self) -> None:
        """The reader has another link now: a gap up to the next number is no loss."""
        self.away = bool(self.ranges)

    def take_over(self, upto: int, above: Iterable[Range]) -> None:
        """Add what another reader has taken of the link."""
        self.away = False
        if self.start is not None and self.start <= upto + 1:
            self.start = None
        self._add_all(0, upto)
        for first, last in above:
            self._add_all(first, last)

    def _add_all(self, first: int, last: int) -> None:
        touching = [r for r in self.ranges if r[0] <= last + 1 and r[1] + 1 >= first]
        joined = [min([first, *(r[0] for r in touching)]), max([last, *(r[1] for r in touching)])]
        rest = [r for r in self.ranges if r not in touching]
        self.ranges = sorted([*rest, joined])
        self._bound()

    def add(self, number: int) -> bool:
        """Add a number; False if it was there before."""
        ranges = self.ranges
        if self.away and number > self.highest:
            self.lost, self.start, self.away = self.missing, number, False
        if ranges and number == ranges[-1][1] + 1:  # the usual case
            ranges[-1][1] = number
            return True
        at = bisect_right(ranges, number, key=lambda each: each[0])
        if at and number <= ranges[at - 1][1]:
            return False
        joins_left = at > 0 and ranges[at - 1][1] + 1 == number
        joins_right = at < len(ranges) and ranges[at][0] == number + 1
        if joins_left and joins_right:
            ranges[at - 1][1] = ranges.pop(at)[1]
        elif joins_left:
            ranges[at - 1][1] = number
        elif joins_right:
            ranges[at][0] = number
        else:
            ranges.insert(at, [number, number])
            self._bound()
        return True

    def _bound(self) -> None:
        while len(self.ranges) > self.most:
            first, second = self.ranges[0], self.ranges[1]
            if self._first == 0:
                self.lost += second[0] - first[1] - 1
            first[1] = second[1]
            del self.ranges[1]

    def include(self, first: int, last: int) -> bool:
        """Whether all numbers from one to another have come."""
        at = bisect_right(self.ranges, first, key=lambda each: each[0])
        return at > 0 and self.ranges[at - 1][1] >= last

    @property
    def highest(self) -> int:
        return self.ranges[-1][1] if self.ranges else 0

    @property
    def contiguous(self) -> int:
        """Everything up to it that was for this reader has been taken; 0 when empty."""
        return self.ranges[self._first][1] if self.ranges else 0

    @property
    def missing(self) -> int:
        """Numbers below the highest that have not come, also those of holes not kept."""
        counted = self.ranges[self._first :]
        pairs = pairwise(counted)
        return self.lost + sum(after[0] - before[1] - 1 for before, after in pairs)

    @property
    def above(self) -> list[list[int]]:
        return self.ranges[self._first + 1 :]

    @property
    def _first(self) -> int:
        at = 0
        while self.start is not None and at + 1 < len(self.ranges):
            if self.ranges[at][1] >= self.start:
                break
            at += 1
        return at

    def to_json(self) -> list[Any]:
        return [self.ranges, self.lost, self.start, self.away]

    @classmethod
    def from_json(cls, data: list[Any]) -> NumberRanges:
        ranges = cls()
        ranges.ranges, ranges.lost, ranges.start, ranges.away = data
        return ranges


class ProducerNumbers:
    """The last epochs of a producer that were met, in this order: they need not rise."""

    __slots__ = ("epochs", "unheard")

    def __init__(self) -> None:
        self.epochs: dict[int, NumberRanges] = {}
        self.unheard = True
        """Nothing was heard of it on this link: an epoch may have begun without this reader."""

    def leave_link(self) -> None:
        self.unheard = True
        for ranges in self.epochs.values():
            ranges.leave()

    @property
    def missing(self) -> int:
        return sum(ranges.missing for ranges in self.epochs.values())

    def find_or_add(self, epoch: int) -> tuple[NumberRanges, int]:
        """The ranges of an epoch, and the holes of the one that was dropped for it."""
        known = self.epochs.get(epoch)
        if known is not None:
            return known, 0
        ranges = NumberRanges()
        if not self.unheard and all(earlier < epoch for earlier in self.epochs):
            ranges.add(0)  # so that a hole at the very beginning shows
        dropped = self._make_room()
        self.epochs[epoch] = ranges
        return ranges, dropped

    def find_or_insert(self, epoch: int, after: int | None) -> tuple[NumberRanges, int] | None:
        """Find an epoch that is handed over, `after` another one (None: none); a new one is put
        before the first that is higher. None when all that are kept are newer."""
        known = self.epochs.get(epoch)
        if known is not None:
            return known, 0
        newer: dict[int, NumberRanges] = {}
        passed = after is None
        for other, ranges in self.epochs.items():
            if passed and (newer or other > epoch):
                newer[other] = ranges
            passed = passed or other == after
        if len(newer) == MAX_EPOCHS:
            return None
        dropped = self._make_room()
        for other in newer:
            self.epochs.pop(other, None)
        added = self.epochs[epoch] = NumberRanges()
        self.epochs.update(newer)
        return added, dropped

    def _make_room(self) -> int:
        if len(self.epochs) < MAX_EPOCHS:
            return 0
        return self.epochs.pop(next(iter(self.epochs))).missing

    def to_json(self) -> list[Any]:
        return [self.unheard, [[epoch, r.to_json()] for epoch, r in self.epochs.items()]]

    @classmethod
    def from_json(cls, data: list[Any]) -> ProducerNumbers:
        numbers = cls()
        numbers.unheard = data[0]
        numbers.epochs = {epoch: NumberRanges.from_json(r) for epoch, r in data[1]}
        return numbers
