"""The broker: logs in this process, by address."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4
from zlib import crc32

from speck.binding import (
    AddressRules,
    BrokerCapability,
    Outgoing,
    Reservation,
    Scheme,
    Target,
    WriterOptions,
)
from speck.errors import BrokerRefusedError, UnreachableError
from speck.model.finding import Finding
from speck.model.observation import BrokerView, Position, Taken
from speck.model.record import Record

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Entry(NamedTuple):
    payload: bytes
    stamp: str | None


class Found(NamedTuple):
    part: str
    number: int
    entry: Entry


@dataclass
class Part:
    """Entries by offset, from 1; those before `first` were deleted."""

    entries: dict[int, Entry] = field(default_factory=dict)
    first: int = 1
    end: int = 0


@dataclass
class Log:
    """Its parts by their names in positions, of which the log's own identity is one half: a log
    that is made anew has other ones."""

    parts: dict[str, Part]

    @classmethod
    def make(cls, topic: str, count: int) -> Log:
        made = uuid4().hex[:6]
        return cls({f"log {topic} {made}/{number}": Part() for number in range(count)})

    @property
    def end(self) -> int:
        """Entries that were ever appended."""
        return sum(part.end for part in self.parts.values())


Place = dict[str, int]
"""Where a reader is, by part of the log."""


class Canal:
    """One broker; what is appended to it stays until it is trimmed. Its logs have so many parts; a
    writer stays with one."""

    def __init__(self, parts: int = 1) -> None:
        self.lock = threading.RLock()
        self.part_count = parts
        self.logs: dict[str, Log] = {}
        self.places: dict[tuple[str, str], Place] = {}
        self.identity: str | None = None
        self.up_since = time.monotonic()
        self.closed = False

    def log(self, topic: str) -> Log:
        if topic not in self.logs:
            self.logs[topic] = Log.make(topic, self.part_count)
        return self.logs[topic]

    def append(self, topic: str, payload: bytes, stamp: str | None = None) -> None:
        with self.lock:
            parts = list(self.log(topic).parts.values())
            writer = (stamp or "").rpartition("/")[0]
            part = parts[crc32(writer.encode()) % len(parts)]
            part.end += 1
            part.entries[part.end] = Entry(payload, stamp)

    def read(self, topic: str, place: Mapping[str, int], most: int = 100) -> list[Found]:
        """What lies behind a place: of each part in order."""
        with self.lock:
            found = []
            for name, part in self.log(topic).parts.items():
                first = max(place.get(name, 0) + 1, part.first)
                last = min(part.end, first + most - 1)
                found += [Found(name, n, part.entries[n]) for n in range(first, last + 1)]
            return found

    def add_part(self, topic: str, payloads: Sequence[bytes]) -> None:
        with self.lock:
            entries = {n: Entry(payload, None) for n, payload in enumerate(payloads, 1)}
            name = f"log {topic} {uuid4().hex[:6]}/added"
            self.log(topic).parts[name] = Part(entries, end=len(entries))

    def ends(self, topic: str) -> Place:
        with self.lock:
            return {name: part.end for name, part in self.log(topic).parts.items()}

    def find_place(self, reader: str, topic: str) -> Place | None:
        """A reader's place; None if it has none, or none in the log as it is now."""
        with self.lock:
            place, ends = self.places.get((reader, topic)), self.ends(topic)
            if place is None or not place.keys() & ends.keys():
                return None
            is_behind_end = any(place.get(name, 0) > end for name, end in ends.items())
            return None if is_behind_end else place

    def commit(self, reader: str, topic: str, place: Place) -> None:
        """Move a reader's place on; one that was released has none."""
        with self.lock:
            before = self.find_place(reader, topic)
            if before is not None:
                newer = {name: max(n, before.get(name, 0)) for name, n in place.items()}
                self.places[reader, topic] = before | newer

    def trim(self, topic: str, count: int) -> None:
        """Delete the oldest entries of each part."""
        with self.lock:
            for part in self.log(topic).parts.values():
                part.first = max(part.first, min(count, part.end) + 1)
                part.entries = {n: e for n, e in part.entries.items() if n >= part.first}

    def cut(self, topic: str, end: int) -> None:
        """Lose the newest entries of each part, as a disk that was not synced does."""
        with self.lock:
            for part in self.log(topic).parts.values():
                part.end = min(part.end, end)
                part.entries = {n: e for n, e in part.entries.items() if n <= part.end}

    def make_anew(self, topic: str) -> None:
        """Delete a log with what is in it, and begin one of the same name."""
        with self.lock:
            del self.logs[topic]
            self.log(topic)

    def last_number(self, topic: str, series: str) -> int:
        """The highest number that a log holds of a series of stamps."""
        with self.lock:
            parts = self.log(topic).parts.values()
            stamps = (entry.stamp or "" for part in parts for entry in part.entries.values())
            pairs = (stamp.rpartition("/") for stamp in stamps)
            return max((int(n) for name, _, n in pairs if name == series), default=0)


CANALS: defaultdict[str, Canal] = defaultdict(Canal)
"""All brokers, by address."""


class CanalBroker:
    capabilities = frozenset({BrokerCapability.SESSIONS, BrokerCapability.NUMBERS})
    addresses = AddressRules({"canal": Scheme(4711)}, "canal://host:4711")

    def __init__(self, target: Target) -> None:
        self._address = target.address
        self._on_request = target.on_request

    @staticmethod
    def topic_fault(topic: str) -> str | None:
        if NAME.fullmatch(topic):
            return None
        return "is no name of a log: up to 100 of a-z, 0-9, '.', '_' and '-'"

    @property
    def _canal(self) -> Canal:
        canal = CANALS[self._address]
        if canal.closed:
            raise UnreachableError(f"cannot reach the canal at {self._address}")
        return canal

    def reach(self) -> str:
        return "canal 1" if self._canal else ""

    def identify(self, proposed: str | None = None) -> str | None:
        canal = self._canal
        with canal.lock:
            canal.identity = canal.identity or proposed
            return canal.identity

    def reserve(
        self,
        reader: str,
        topic: str,
        *,
        fresh: bool = False,
        first: bool = False,
        lost: bool = False,
        at: Position | None = None,
    ) -> Reservation:
        canal = self._canal
        if self.topic_fault(topic):
            raise BrokerRefusedError(f"cannot reserve {topic!r}: it is no log")
        with canal.lock:
            existed = canal.find_place(reader, topic) is not None
            if fresh or not existed:
                canal.places[reader, topic] = _begin(canal.ends(topic), None if fresh else at)
            place = canal.places[reader, topic]
        self._on_request()
        return Reservation(existed, {(name, 0): number for name, number in place.items()})

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        canal = self._canal
        with canal.lock:
            canal.places.pop((reader, topic), None)
        self._on_request()

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        canal = self._canal
        has_reader = any(each == topic for _, each in canal.places)
        for payload in payloads:
            canal.append(topic, payload)
        return 0 if has_reader else len(payloads)

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        place = self._canal.ends(topic)
        pause = threading.Event()
        while go_on():
            for part, number, entry in self._canal.read(topic, place):
                place[part] = number
                on_record(Record(entry.stamp, entry.payload))
            pause.wait(0.01)

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        canal = self._canal
        with canal.lock:
            places = {key: canal.find_place(*key) for key in canal.places}
            there = {key: place for key, place in places.items() if place is not None}
            readers = {reader for reader, _ in there if clients is None or reader in clients}
            logs = {topic for _, topic in canal.places} | canal.logs.keys()
            return BrokerView(
                taken={reader: _taken(canal, reader, there) for reader in readers},
                sent={},
                sessions=frozenset(there),
                identity=canal.identity,
                up_since=canal.up_since,
                ends={t: {(name, 0): end for name, end in canal.ends(t).items()} for t in logs},
            )

    def check(self) -> list[Finding]:
        self.reach()
        return []

    def close(self) -> None:
        """There are no connections."""

    class links:
        """Its links for programs that are no jobs."""

        def __init__(self, address: str, login: object = None) -> None:
            self._canal = CANALS[address]

        def writer(
            self, options: WriterOptions, on_acked: Callable[[Outgoing, bool], None]
        ) -> Writer:
            return Writer(self._canal, on_acked)

        def reader(
            self,
            topic: str,
            name: str,
            on_record: Callable[[Record], None],
            on_damaged: Callable[[bytes], None],
        ) -> Reader:
            return Reader(self._canal, topic, name, on_record)


def _begin(ends: Place, at: Position | None) -> Place:
    """Where a place begins: at a position, if one is given, as far as the log has it."""
    if at is None:
        return ends
    wanted = {name: at.get((name, 0), 0) for name in ends}
    return {name: number if number <= ends[name] else 0 for name, number in wanted.items()}


def _taken(canal: Canal, reader: str, places: Mapping[tuple[str, str], Place]) -> Taken:
    """A reader's places. What was deleted before it was taken is missing, and will not come."""
    taken: dict[str, dict[int, int]] = {}
    missing: dict[str, dict[int, int]] = {}
    for (name, topic), place in places.items():
        for series, part in canal.log(topic).parts.items() if name == reader else ():
            taken[series] = {0: place.get(series, 0)}
            if (deleted := part.first - 1 - place.get(series, 0)) > 0:
                missing[series] = {0: deleted}
    total = sum(numbers[0] for numbers in taken.values())
    return Taken(total, taken, missing, messages=total, at_ms=total)


class Writer:
    """Appends at once; tells of it when it is tended."""

    def __init__(self, canal: Canal, on_acked: Callable[[Outgoing, bool], None]) -> None:
        self.refused = self.resent = 0
        self._canal, self._on_acked = canal, on_acked
        self._sent: list[Outgoing] = []
        self.ready = True

    @property
    def drained(self) -> bool:
        return not self._sent

    def send(self, record: Outgoing) -> None:
        self._canal.append(record.topic, record.payload, record.stamp)
        self._sent.append(record)

    def tend(self) -> None:
        sent, self._sent = self._sent, []
        for record in sent:
            first, record.acked = not record.acked, True
            self._on_acked(record, first)

    def fileno(self) -> int:
        return -1

    def connect(self) -> None: ...
    def want_write(self) -> bool:
        return False

    def read(self) -> None: ...
    def write(self) -> None: ...
    def close(self) -> None: ...


class Reader:
    """Reads on from a reader's place in a thread of its own."""

    def __init__(
        self, canal: Canal, topic: str, name: str, on_record: Callable[[Record], None]
    ) -> None:
        self._canal, self._topic, self._name, self._on_record = canal, topic, name, on_record
        with canal.lock:
            canal.places.setdefault((name, topic), canal.ends(topic))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            place = self._canal.find_place(self._name, self._topic) or {}
            for part, number, entry in self._canal.read(self._topic, place):
                self._on_record(Record(entry.stamp, entry.payload))
                self._canal.commit(self._name, self._topic, {part: number})

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
