"""Numbered messages, and a reader's record of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from speck.model.observation import Ranges, TakenEpoch

KEPT_EPOCHS = 4


@dataclass(frozen=True, slots=True)
class Message:
    """A message. Without a producer it comes from outside and carries no number. A `mark` is not a
    message of the link, but passes through a reader's session like one."""

    payload: bytes
    producer: str | None = None
    epoch: int = 0
    number: int = 0
    mark: str | None = None


@dataclass(slots=True)
class Seen:
    """The numbers seen of one epoch: all up to `highest`, and those in `above`, beyond a gap.

    Numbers before `first` were sent before the reader subscribed; it takes them if they come.
    """

    highest: int = 0
    above: set[int] = field(default_factory=set)
    first: int = 1
    early: set[int] = field(default_factory=set)

    @classmethod
    def starting_at(cls, number: int) -> Seen:
        """The record of a reader whose first message of a producer has this number."""
        return cls(highest=number - 1, first=number)

    def add(self, number: int) -> bool:
        """Record a number; returns False if it was seen before."""
        if number < self.first:
            is_new = number not in self.early
            self.early.add(number)
            return is_new
        if number <= self.highest or number in self.above:
            return False
        self.above.add(number)
        while self.highest + 1 in self.above:
            self.highest += 1
            self.above.discard(self.highest)
        return True

    def take_over(self, taken: TakenEpoch) -> None:
        """Record what an earlier reader has taken: such messages are dropped if they come. Messages
        that the earlier reader has not taken are taken, also those before `first`."""
        if taken.upto + 1 < self.first:
            self.early |= set(range(1, taken.upto + 1))
            self.early |= {n for a, b in taken.above for n in range(a, b + 1) if n < self.first}
            return
        numbers = {*self.above, *self.early} | {
            number for first, last in taken.above for number in range(first, last + 1)
        }
        self.first, self.early = 1, set()
        self.highest = max(self.highest, taken.upto)
        self.above = {number for number in numbers if number > self.highest}
        while self.highest + 1 in self.above:
            self.highest += 1
            self.above.discard(self.highest)

    def above_ranges(self) -> Ranges:
        """The numbers beyond a gap, as ranges."""
        ranges: list[tuple[int, int]] = []
        for number in sorted(self.above):
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        return tuple(ranges)

    @property
    def missing(self) -> int:
        """Count the numbers below the highest one that were never seen."""
        return max(self.above) - self.highest - len(self.above) if self.above else 0


@dataclass(slots=True)
class Ledger:
    """What a reader has taken from each producer: the part of a job's state that matters."""

    seen: dict[str, dict[int, Seen]] = field(default_factory=dict)
    messages: int = 0

    def copy(self) -> Ledger:
        """What is recorded now."""
        return Ledger(
            {
                producer: {
                    epoch: replace(each, above=set(each.above), early=set(each.early))
                    for epoch, each in epochs.items()
                }
                for producer, epochs in self.seen.items()
            },
            self.messages,
        )

    def add(self, message: Message) -> bool:
        """Record a message; returns False if it is a repeat."""
        if message.producer is not None:
            epochs = self.seen.setdefault(message.producer, {})
            if message.epoch not in epochs:
                epochs[message.epoch] = Seen() if epochs else Seen.starting_at(message.number)
            if not epochs[message.epoch].add(message.number):
                return False
            for old in sorted(epochs)[:-KEPT_EPOCHS]:
                del epochs[old]
        self.messages += 1
        return True

    def take_over(self, taken: Iterable[TakenEpoch]) -> None:
        """Record what an earlier reader of the link has taken."""
        for each in taken:
            epochs = self.seen.setdefault(each.producer, {})
            epochs.setdefault(each.epoch, Seen()).take_over(each)

    def above(self) -> dict[str, dict[int, Ranges]]:
        """Producer -> epoch -> ranges taken beyond a gap; epochs without a gap are omitted."""
        ranges = {
            producer: {epoch: seen.above_ranges() for epoch, seen in epochs.items() if seen.above}
            for producer, epochs in self.seen.items()
        }
        return {producer: epochs for producer, epochs in ranges.items() if epochs}

    def taken(self) -> dict[str, dict[int, int]]:
        """Producer -> epoch -> highest contiguous number."""
        return {
            producer: {epoch: seen.highest for epoch, seen in epochs.items()}
            for producer, epochs in self.seen.items()
        }

    def missing(self) -> dict[str, dict[int, int]]:
        """Producer -> epoch -> number of missing messages; epochs without any are omitted."""
        counts = {
            producer: {epoch: seen.missing for epoch, seen in epochs.items() if seen.missing}
            for producer, epochs in self.seen.items()
        }
        return {producer: epochs for producer, epochs in counts.items() if epochs}
