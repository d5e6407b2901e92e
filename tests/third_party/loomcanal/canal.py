"""The broker: logs in this process, by address."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple

from speck.binding import (
    AddressRules,
    BrokerCapability,
    Outgoing,
    Scheme,
    Target,
    WriterOptions,
)
from speck.errors import BrokerRefusedError, UnreachableError
from speck.model.batches import Record
from speck.model.finding import Finding
from speck.model.observation import BrokerView, Taken

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Entry(NamedTuple):
    payload: bytes
    stamp: str | None


@dataclass
class Log:
    """Entries by offset, from 1; those before `first` were deleted."""

    entries: dict[int, Entry] = field(default_factory=dict)
    first: int = 1
    end: int = 0


class Canal:
    """One broker; what is appended to it stays until it is trimmed."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.logs: defaultdict[str, Log] = defaultdict(Log)
        self.places: dict[tuple[str, str], int] = {}
        self.identity: str | None = None
        self.up_since = time.monotonic()
        self.closed = False

    def append(self, topic: str, payload: bytes, stamp: str | None = None) -> int:
        with self.lock:
            log = self.logs[topic]
            log.end += 1
            log.entries[log.end] = Entry(payload, stamp)
            return log.end

    def read(self, topic: str, after: int, most: int = 100) -> list[tuple[int, Entry]]:
        with self.lock:
            log = self.logs[topic]
            first = max(after + 1, log.first)
            last = min(log.end, first + most - 1)
            return [(offset, log.entries[offset]) for offset in range(first, last + 1)]

    def commit(self, reader: str, topic: str, offset: int) -> None:
        """Move a reader's place on; one that was released has none."""
        with self.lock:
            if (reader, topic) in self.places:
                self.places[reader, topic] = max(offset, self.places[reader, topic])

    def trim(self, topic: str, first: int) -> None:
        """Delete what lies before an offset."""
        with self.lock:
            log = self.logs[topic]
            for offset in range(log.first, first):
                log.entries.pop(offset, None)
            log.first = max(log.first, first)

    def last_number(self, topic: str, series: str) -> int:
        """The highest number that a log holds of a series of stamps."""
        with self.lock:
            stamps = (entry.stamp or "" for entry in self.logs[topic].entries.values())
            parts = (stamp.rpartition("/") for stamp in stamps)
            return max((int(n) for name, _, n in parts if name == series), default=0)


CANALS: defaultdict[str, Canal] = defaultdict(Canal)
"""All brokers, by address."""


def series_of(topic: str) -> str:
    """What this broker calls a log in positions."""
    return f"log of {topic}"


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

    def reserve(self, reader: str, topic: str, *, fresh: bool = False, lost: bool = False) -> bool:
        canal = self._canal
        if self.topic_fault(topic):
            raise BrokerRefusedError(f"cannot reserve {topic!r}: it is no log")
        with canal.lock:
            existed = (reader, topic) in canal.places
            if fresh or not existed:
                canal.places[reader, topic] = canal.logs[topic].end
        self._on_request()
        return existed

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        canal = self._canal
        with canal.lock:
            canal.places.pop((reader, topic), None)
        self._on_request()

    def announce(self, topic: str, *, readers: bool) -> None:
        """Nobody waits for readers here."""

    def confirm_sessions(self, topic: str, readers: Iterable[str]) -> bool:
        return {(reader, topic) for reader in readers} <= self._canal.places.keys()

    def forget(self, *sinks: str) -> None:
        if sinks:
            self.reach()

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        canal = self._canal
        has_reader = any(each == topic for _, each in canal.places)
        for payload in payloads:
            canal.append(topic, payload)
        return 0 if has_reader else len(payloads)

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        place = self._canal.logs[topic].end
        pause = threading.Event()
        while go_on():
            for offset, entry in self._canal.read(topic, place):
                place = offset
                on_record(Record(entry.stamp, entry.payload))
            pause.wait(0.01)

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        canal = self._canal
        with canal.lock:
            return BrokerView(
                taken={
                    reader: _taken(topic, place, canal.logs[topic])
                    for (reader, topic), place in canal.places.items()
                    if clients is None or reader in clients
                },
                sent={},
                readers={topic: True for _, topic in canal.places},
                sessions=frozenset(canal.places),
                identity=canal.identity,
                up_since=canal.up_since,
                ends={t: {(series_of(t), 0): log.end} for t, log in canal.logs.items()},
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


def _taken(topic: str, place: int, log: Log) -> Taken:
    """A reader's place. What was deleted before it was taken is missing, and will not come."""
    missing = max(0, log.first - 1 - place)
    holes = {series_of(topic): {0: missing}} if missing else {}
    return Taken(place, {series_of(topic): {0: place}}, holes, messages=place, at_ms=place)


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
            canal.places.setdefault((name, topic), canal.logs[topic].end)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.01):
            place = self._canal.places.get((self._name, self._topic))
            for offset, entry in self._canal.read(self._topic, place or 0):
                self._on_record(Record(entry.stamp, entry.payload))
                self._canal.commit(self._name, self._topic, offset)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
