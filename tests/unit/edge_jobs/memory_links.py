"""Links in memory for the Python link client: logs, in which readers have places."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field

from speck_link.arguments import Contract, Link
from speck_link.kafka.tail import parse_stamp
from speck_link.sent import SeenNumbers, SentNumber
from speck_link.transport import (
    Incoming,
    Outcome,
    Place,
    Position,
    ReaderListener,
    TakenReport,
    WriterListener,
)

SERIES, TERM = "log/0", 3
ALWAYS_READABLE = os.open("/dev/zero", os.O_RDONLY)
"""So that no turn of a job waits."""


@dataclass
class Log:
    """Records with their stamps, and where its reader is by its own word."""

    records: list[tuple[str | None, bytes]] = field(default_factory=list)
    place: int | None = None
    reports: list[TakenReport] = field(default_factory=list)

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.records]

    @property
    def stamps(self) -> list[tuple[int, int]]:
        """Epochs and numbers."""
        parts = [(stamp or "").split("/") for stamp, _ in self.records]
        return [(int(epoch), int(number)) for _, epoch, number in parts]


class MemoryEnd:
    ready = False
    is_full = False
    problem: str | None = None

    def fileno(self) -> int:
        return ALWAYS_READABLE

    def wants_write(self) -> bool:
        return False

    def read(self) -> None: ...
    def write(self) -> None: ...
    def disconnect(self) -> None:
        self.ready = False


class MemoryReader(MemoryEnd):
    """Reads some records in each turn of the job."""

    AT_ONCE = 10
    dropped = sessions_lost = 0
    has_reported = True

    def __init__(
        self, log: Log, listener: ReaderListener, position: Position, *, read_before: bool
    ) -> None:
        self.log, self.listener = log, listener
        self.read_before = read_before
        self.next = self.kept = position.get(SERIES, Place(log.place or 0)).offset
        self._room = 0

    def tend(self, now: float) -> None:
        self.ready, self._room = True, self.AT_ONCE

    @property
    def has_waiting(self) -> bool:
        return self._room > 0 and self.next < len(self.log.records)

    def poll(self) -> Incoming:
        stamp, payload = self.log.records[self.next]
        self.next, self._room = self.next + 1, self._room - 1
        return Incoming(payload, stamp, None, False, (0, self.next - 1))

    def keep(self, message: Incoming) -> None:
        self.kept = message.place[1] + 1

    def position(self) -> Position:
        return {SERIES: Place(self.kept, TERM)}

    def acknowledge(self) -> None: ...
    def report(self, report: TakenReport) -> bool:
        self.log.place = report.position[SERIES].offset
        self.log.reports.append(report)
        return True


class MemoryWriter(MemoryEnd):
    """Writes, and answers one turn later."""

    takes_batches = False
    keeps_log = True
    is_reporting = False
    size_setting = "its limit"
    most_in_flight = 100
    bytes_sent = 0

    def __init__(self, log: Log, listener: WriterListener, max_payload: int = 1 << 20) -> None:
        self.log, self.listener, self.max_payload = log, listener, max_payload
        self._answers: deque[int] = deque()
        self._key = 0

    def tend(self, now: float) -> None:
        if not self.ready:
            self.listener.admit()
            self.listener.status.confirmed = self._find_sent(self.listener.oldest_doubtful)
            self.ready = True
            self.listener.begin()
        while self._answers:
            self.listener.settle(self._answers.popleft(), Outcome.TAKEN)

    def lose(self) -> None:
        """The connection ends; what was written stays, and nobody says so."""
        self._answers.clear()
        self.listener.start_over(is_guilty=False)
        self.ready = False

    def _find_sent(self, oldest: SentNumber | None) -> SeenNumbers | None:
        if oldest is None:
            return None
        seen = SeenNumbers(oldest.producer)
        for stamp, _ in self.log.records:
            if (number := parse_stamp(stamp or "")) is not None:
                seen.add(number)
        return seen or None

    def send(self, payload: bytes, stamp: str, content_type: str | None) -> int | None:
        assert content_type is None
        self._key += 1
        self.log.records.append((stamp, payload))
        self._answers.append(self._key)
        return self._key

    def report(self, payload: bytes) -> bool:
        return True


@dataclass
class Ends:
    """The two logs of a job, and the ends that the job has opened last; if it writes to other
    topics than `out`, their logs."""

    source: Log = field(default_factory=Log)
    sink: Log = field(default_factory=Log)
    more: dict[str, Log] = field(default_factory=dict)
    reader: MemoryReader | None = None
    writer: MemoryWriter | None = None
    max_payload: int = 1 << 20

    def open_reader(
        self,
        contract: Contract,
        listener: ReaderListener,
        position: Position,
        *,
        read_before: bool,
    ) -> MemoryReader:
        self.reader = MemoryReader(self.source, listener, position, read_before=read_before)
        return self.reader

    def open_writer(self, contract: Contract, link: Link, listener: WriterListener) -> MemoryWriter:
        log = self.sink if link.topic == "out" else self.more.setdefault(link.topic, Log())
        self.writer = MemoryWriter(log, listener, self.max_payload)
        return self.writer
