"""Which numbers a reader has taken from each producer; a twin of the connector's TakenNumbers.

A reader that meets a producer for the first time, or on another link than before, may have come
late: numbers below the first one that it sees are not missing then. In every later epoch of that
producer numbering is known to begin at 1. Anybody may publish to a topic, so all is bounded.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple
from urllib.parse import unquote

from speck_link.numbers import NumberRanges, ProducerNumbers, Range

MAX_PRODUCERS = 1000
MAX_NAME = 200
LOG_EPOCH = 0
"""Of positions in a log, which are handed over as numbers of producers are."""
_MOST_DIGITS = 18
_MOST_RANGES = 5000


class Entry(NamedTuple):
    """What was taken of one epoch of a producer."""

    producer: str
    epoch: int
    upto: int
    above: tuple[Range, ...]


def parse_number(text: str) -> int:
    """Decimal digits; -1 when there is anything else, or too many."""
    fits = 0 < len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit()
    return int(text) if fits else -1


def parse_hand_over(argument: str, text: str) -> tuple[Entry, ...]:
    """The argument `--taken` or `--until`. Raises ValueError naming the entry."""
    return tuple(_parse_entry(argument, entry) for entry in text.split(";") if entry)


def _parse_entry(argument: str, text: str) -> Entry:
    parts = text.split("/")
    numbers = [parse_number(part) for part in parts[1:3]]
    ranges = [pair.split("-") for pair in parts[3].split(",")] if len(parts) == 4 else []
    above = tuple((parse_number(pair[0]), parse_number("-".join(pair[1:]))) for pair in ranges)
    producer = unquote(parts[0])
    fine = len(parts) in (3, 4) and 0 < len(producer) <= MAX_NAME and min(numbers, default=-1) >= 0
    if not fine or any(not 1 <= first <= last for first, last in above):
        raise ValueError(
            f'cannot use --{argument}: "{text}" must be <producer>/<epoch>/<upto>, after which'
            " /<first>-<last>,... may come"
        )
    return Entry(producer, numbers[0], numbers[1], above)


class Until:
    """The numbers up to which a reader reads."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = {f"{each.producer}/{each.epoch}/": each for each in entries}
        self.is_ever = not entries

    def find_position(self, series: str) -> int:
        """Up to where a part of a log is read; 0: not at all."""
        entry = self._entries.get(f"{series}/{LOG_EPOCH}/")
        return entry.upto if entry is not None else 0

    def includes(self, prefix: str, number: int) -> bool:
        entry = self._entries.get(prefix)
        return entry is not None and (
            number <= entry.upto or any(first <= number <= last for first, last in entry.above)
        )


EVER = Until(())


def find_position(entries: tuple[Entry, ...], series: str) -> int:
    """Up to where a part of a log was taken; 0: nothing is said of it."""
    named = (each for each in entries if (each.producer, each.epoch) == (series, LOG_EPOCH))
    return max((each.upto for each in named), default=0)


def split_stamp(stamp: str | None) -> tuple[str, int]:
    """What stands before the number, slash included, and the number; -1 for a foreign stamp."""
    prefix, slash, number = (stamp or "").rpartition("/")
    value = parse_number(number) if slash else -1
    return (f"{prefix}/", value) if value >= 1 else ("", -1)


class TakenNumbers:
    """All numbers that a reader has taken; part of its state."""

    def __init__(self) -> None:
        self.messages = self.lost = 0
        self._producers: dict[str, ProducerNumbers] = {}  # the last one heard is last
        self._link = ""
        self._last: tuple[str, ProducerNumbers, NumberRanges] | None = None

    def is_of(self, client_id: str) -> bool:
        """Whether the link that was read last is that of this client id."""
        return self._link == _hash(client_id)

    def use_link(self, client_id: str) -> None:
        """Name the link that is read from now on. If it is another one than before, nothing is
        known of what went over it meanwhile."""
        link = _hash(client_id)
        if self._link and self._link != link:
            for producer in self._producers.values():
                producer.leave_link()
            self._last = None
        self._link = link

    def take_over(self, entries: tuple[Entry, ...]) -> None:
        """Add what the previous reader of the link has taken. Again, it changes nothing."""
        self._mark_last_heard()
        self._last = None
        last: dict[str, int] = {}
        for entry in entries:
            producer = self._find_producer(entry.producer)
            producer.unheard = False
            place = producer.find_or_insert(entry.epoch, last.get(entry.producer))
            if place is None:
                continue
            ranges, dropped = place
            last[entry.producer] = entry.epoch
            before = ranges.missing
            ranges.take_over(entry.upto, entry.above)
            self.lost += dropped + max(0, before - ranges.missing)

    def take(self, prefix: str, number: int) -> bool:
        """Take a record (number -1: a foreign one); False when it is a repeat."""
        is_new = number < 0 or self._add(prefix, number)
        self.messages += is_new
        return is_new

    def _add(self, prefix: str, number: int) -> bool:
        if self._last is None or self._last[0] != prefix:
            name, _, epoch_text = prefix[:-1].rpartition("/")
            epoch = parse_number(epoch_text)
            if not 0 < len(name) <= MAX_NAME or epoch < 0:
                return True
            self._mark_last_heard()
            producer = self._find_producer(name)
            ranges, dropped = producer.find_or_add(epoch)
            self.lost += dropped
            self._last = prefix, producer, ranges
        return self._last[2].add(number)

    def _mark_last_heard(self) -> None:
        if self._last is not None and not self._last[2].away:
            self._last[1].unheard = False

    def _find_producer(self, name: str) -> ProducerNumbers:
        producer = self._producers.pop(name, None)
        if producer is None:
            if len(self._producers) == MAX_PRODUCERS:
                silent = next(iter(self._producers))
                self.lost += self._producers.pop(silent).missing
            producer = ProducerNumbers()
        self._producers[name] = producer
        return producer

    @property
    def missing(self) -> int:
        """All holes, also those that are not kept any more."""
        return self.lost + sum(each.missing for each in self._producers.values())

    def list_holes(self) -> list[tuple[str, dict[int, int]]]:
        """The producers of which numbers are missing, by epoch; the last one heard is first."""
        holes = []
        for name, each in reversed(self._producers.items()):
            epochs = {epoch: r.missing for epoch, r in each.epochs.items() if r.missing}
            if epochs:
                holes.append((name, epochs))
        return holes

    def announce(self, at_ms: int, checkpoint: int, dropped: int, mark: str | None) -> bytes:
        """The retained message on `speck/taken/<client id>`."""
        epochs = {name: each.epochs for name, each in self._producers.items()}
        body: dict[str, Any] = {
            "v": 1,
            "at": at_ms,
            "checkpoint": checkpoint,
            "taken": {n: {e: r.contiguous for e, r in es.items()} for n, es in epochs.items()},
            "missing": {n: {e: r.missing for e, r in es.items()} for n, es in epochs.items()},
        }
        if above := self._list_above(epochs):
            body["above"] = above
        body["lost"] = self.lost
        if dropped:
            body["dropped"] = dropped
        body["messages"] = self.messages
        if mark is not None:
            body["mark"] = mark
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def _list_above(epochs: dict[str, dict[int, NumberRanges]]) -> dict[str, Any]:
        """Where they are too many, those of the producers silent for longest are left out."""
        found: dict[str, Any] = {}
        room = _MOST_RANGES
        for name, each in reversed(epochs.items()):
            above = {epoch: ranges.above for epoch, ranges in each.items() if ranges.above}
            room -= sum(map(len, above.values()))
            if above and room >= 0:
                found[name] = above
        return found

    def to_json(self) -> str:
        self._mark_last_heard()
        producers = [[name, each.to_json()] for name, each in self._producers.items()]
        return json.dumps([self.messages, self.lost, self._link, producers])

    @classmethod
    def from_json(cls, text: str) -> TakenNumbers:
        taken = cls()
        taken.messages, taken.lost, taken._link, producers = json.loads(text)
        taken._producers = {name: ProducerNumbers.from_json(each) for name, each in producers}
        return taken


def _hash(client_id: str) -> str:
    return hashlib.sha256(client_id.encode()).hexdigest()[:16]
