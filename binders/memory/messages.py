"""Numbered messages, and what a reader remembers of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from speck.model.observation import Ranges, TakenEpoch

KEPT_EPOCHS = 4


@dataclass(frozen=True, slots=True)
class Message:
    """A message; one without a producer is foreign and carries no number. A `mark` is no message
    of a link, but goes through a reader's session like one."""

    payload: bytes
    producer: str | None = None
    epoch: int = 0
    number: int = 0
    mark: str | None = None


@dataclass(slots=True)
class Seen:
    """The numbers seen of one epoch: all up to `highest`, and those in `above` past a hole.

    Those before `first` were given out before the reader came; it takes them, if they come.
    """

    highest: int = 0
    above: set[int] = field(default_factory=set)
    first: int = 1
    early: set[int] = field(default_factory=set)

    @classmethod
    def joining(cls, number: int) -> Seen:
        """For a reader that meets a producer for the first time, at this number."""
        return cls(highest=number - 1, first=number)

    def add(self, number: int) -> bool:
        """Note a number; False when it was seen before."""
        if number < self.first:
            new = number not in self.early
            self.early.add(number)
            return new
        if number <= self.highest or number in self.above:
            return False
        self.above.add(number)
        while self.highest + 1 in self.above:
            self.highest += 1
            self.above.discard(self.highest)
        return True

    def take_over(self, taken: TakenEpoch) -> None:
        """Note what another reader has taken before: it is dropped should it come. What neither
        of the two had before this one came late is taken, as ever."""
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
        """The numbers past a hole, as ranges."""
        ranges: list[tuple[int, int]] = []
        for number in sorted(self.above):
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], number)
            else:
                ranges.append((number, number))
        return tuple(ranges)

    @property
    def missing(self) -> int:
        """How many numbers below the highest seen were never seen."""
        return max(self.above) - self.highest - len(self.above) if self.above else 0


@dataclass(slots=True)
class Ledger:
    """What a reader has taken from each producer; the part of a job's state that counts."""

    seen: dict[str, dict[int, Seen]] = field(default_factory=dict)
    messages: int = 0

    def add(self, message: Message) -> bool:
        """Note a message; False when it is a repeat."""
        if message.producer is not None:
            epochs = self.seen.setdefault(message.producer, {})
            if message.epoch not in epochs:
                epochs[message.epoch] = Seen() if epochs else Seen.joining(message.number)
            if not epochs[message.epoch].add(message.number):
                return False
            for old in sorted(epochs)[:-KEPT_EPOCHS]:
                del epochs[old]
        self.messages += 1
        return True

    def take_over(self, taken: Iterable[TakenEpoch]) -> None:
        """Note what another reader of the link has taken before this one."""
        for each in taken:
            epochs = self.seen.setdefault(each.producer, {})
            epochs.setdefault(each.epoch, Seen()).take_over(each)

    def above(self) -> dict[str, dict[int, Ranges]]:
        """Producer -> epoch -> ranges taken past a hole; those without a hole are absent."""
        found = {
            producer: {epoch: seen.above_ranges() for epoch, seen in epochs.items() if seen.above}
            for producer, epochs in self.seen.items()
        }
        return {producer: epochs for producer, epochs in found.items() if epochs}

    def taken(self) -> dict[str, dict[int, int]]:
        """Producer -> epoch -> highest contiguous number."""
        return {
            producer: {epoch: seen.highest for epoch, seen in epochs.items()}
            for producer, epochs in self.seen.items()
        }

    def missing(self) -> dict[str, dict[int, int]]:
        """Producer -> epoch -> count of holes; producers and epochs without holes are absent."""
        found = {
            producer: {epoch: seen.missing for epoch, seen in epochs.items() if seen.missing}
            for producer, epochs in self.seen.items()
        }
        return {producer: epochs for producer, epochs in found.items() if epochs}
