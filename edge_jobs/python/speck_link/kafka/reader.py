"""Reads all partitions of a topic, and keeps the reader's place in them."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError

from speck_link.arguments import Contract, Link
from speck_link.kafka.client import FETCH_SETTINGS, OpenClient, seek
from speck_link.kafka.connection import KafkaEnd, LogConnection, Signal
from speck_link.kafka.metadata import write_metadata
from speck_link.kafka.start import ReadingRange, find_starts, go_back
from speck_link.kafka.tail import stamp_of
from speck_link.kafka.topic import LinkTopic, commit, find_or_make, read_extents, read_places
from speck_link.transport import Incoming, Place, Position, ReaderListener, TakenReport

MOST_WAITING = 16 << 20
_OVERHEAD = 300
"""About what a record takes in memory beside its payload."""
_POLL_MS = 250
_FULL_S = 0.1
_PARTITIONS_S = 30.0
_COMMIT_AGAIN_S = 600.0
"""Brokers forget old places."""
_CLOSE_MS = 2000
_SETTINGS = {
    "group_id": None,  # the group has no members: places are committed beside it
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "isolation_level": "read_committed",
    "metrics_enabled": False,
    **FETCH_SETTINGS,
}

_UNKNOWN = -1

_GONE = (LogTruncationError, OffsetOutOfRangeError)

Places = tuple[Mapping[int, Place], str]
"""Places by partition, and what is said beside them."""


class LogReader(LogConnection):
    """A connection: polls the broker into an inbox, and commits."""

    def __init__(self, link: Link, reading: ReadingRange, window: int, signal: Signal) -> None:
        super().__init__(link, signal)
        self._reading, self._window = reading, window
        self._admin: OpenClient | None = None
        self._consumer: OpenClient | None = None
        self._poller: Any = None
        self._ends: Mapping[int, int] = {}
        self.topic: LinkTopic | None = None
        self.starts: Mapping[int, Place] = {}
        self.is_place_kept = False
        self.inbox: deque[Incoming] = deque()
        self._bytes_added = self.bytes_taken = 0  # each by one thread alone
        self.idle: Mapping[int, int] = {}
        """Offsets before which the inbox has had everything, when there was nothing to read."""
        self._to_commit: deque[Places] = deque(maxlen=1)
        self._committed: tuple[Places | None, float] = None, time.monotonic()
        self._is_committing = False
        self._partitions_looked = time.monotonic()

    # -- for the job's thread

    @property
    def is_full(self) -> bool:
        waiting = self._bytes_added - self.bytes_taken
        return len(self.inbox) >= self._window or waiting >= MOST_WAITING

    def commit(self, places: Places) -> None:
        """Commit these places soon, and none of before."""
        self._is_committing = True
        self._to_commit.append(places)
        self._awake.set()

    def go_on(self) -> None:
        """There is room again."""
        self._awake.set()

    @property
    def is_committing(self) -> bool:
        return self._is_committing

    # -- in its own thread

    def open(self) -> None:
        self._admin = OpenClient(KafkaAdminClient, self.link)
        admin = self._admin.client
        topic = find_or_make(admin, self.link.topic)
        places = read_places(admin, self.link.client_id, topic)
        extents = read_extents(admin, topic)
        self.starts = find_starts(self.link, topic, self._reading, places, extents)
        self._ends = {part: self._reading.find_end(topic.series(part)) for part in topic.parts}
        self._consumer = OpenClient(KafkaConsumer, self.link, **_SETTINGS)
        self._poller = self._consumer.client
        self._poller.assign([topic.partition(part) for part in topic.parts])
        for part, start in self.starts.items():
            seek(self._poller, topic.partition(part), start)
        self.topic = topic
        self.is_place_kept = bool(places)
        if not places:  # from now on the broker keeps what comes for this reader
            commit(admin, self.link.client_id, topic, self.starts, "")

    def serve(self) -> None:
        assert self._consumer is not None
        self._commit_if_asked()
        if self.is_full:
            self.wait(_FULL_S)
        else:
            self._receive(self._poller.poll(timeout_ms=_POLL_MS))
        self.look(self._consumer)
        self._look_for_partitions()

    def _receive(self, batches: Mapping[Any, list[Any]]) -> None:
        if not batches:
            self._note_idle()
        for records in batches.values():
            for record in records:
                if record.offset < self._ends[record.partition]:
                    self._add(record)  # else it is for the next start
        if batches:
            self._signal.set()

    def _add(self, record: Any) -> None:
        payload = bytes(record.value or b"")
        place = record.partition, record.offset, record.leader_epoch
        self._bytes_added += len(payload) + _OVERHEAD
        self.inbox.append(Incoming(payload, stamp_of(record), None, False, place))

    def _note_idle(self) -> None:
        """Markers of transactions take offsets, too: it may be past the last record."""
        assert self.topic is not None
        idle = {}
        for part in self.topic.parts:
            position = self._poller.position(self.topic.partition(part), timeout_ms=_POLL_MS)
            if position is not None:
                idle[part] = min(self._ends[part], position)
        self.idle = idle

    def _commit_if_asked(self) -> None:
        last, at = self._committed
        if self._to_commit:
            self._commit(self._to_commit.popleft())
        elif last is not None and time.monotonic() - at > _COMMIT_AGAIN_S:
            self._commit(last)

    def _commit(self, places: Places) -> None:
        assert self._admin is not None
        assert self.topic is not None
        commit(self._admin.client, self.link.client_id, self.topic, *places)
        self._committed = places, time.monotonic()
        self._is_committing = bool(self._to_commit)

    def _look_for_partitions(self) -> None:
        assert self._consumer is not None
        assert self.topic is not None
        now = time.monotonic()
        if now - self._partitions_looked < _PARTITIONS_S:
            return
        self._partitions_looked = now
        count = self._consumer.count_partitions(self.topic.name)
        if count and count != len(self.topic.parts):
            raise KafkaError("the topic has other partitions now")

    def release(self) -> None:
        try:
            if self.error is None:
                self._commit_if_asked()
        finally:
            if self._consumer is not None:
                self._consumer.close(timeout_ms=_CLOSE_MS)
            if self._admin is not None:
                self._admin.close()


class KafkaReader(KafkaEnd[LogReader]):
    """The reader of a job's source. A message's place is its partition, its offset and the term of
    its leader."""

    doing = "read"
    dropped = 0

    def __init__(
        self,
        contract: Contract,
        listener: ReaderListener,
        position: Position,
        *,
        read_before: bool,
    ) -> None:
        super().__init__(contract.source)
        self._contract, self._listener = contract, listener
        self._restored, self._read_before = dict(position), read_before
        self._reached: Position = {}
        self._next: dict[int, Place] = {}
        self.sessions_lost = 0

    def _connect(self) -> LogReader:
        contract = self._contract
        reading = ReadingRange(
            self._restored, self._read_before, contract.taken, contract.until, self._reached
        )
        return LogReader(self.link, reading, contract.receive_maximum, self.signal)

    def _begin(self, connection: LogReader) -> None:
        assert connection.topic is not None
        self._next = dict(connection.starts)
        self._reached = _name(connection.topic, self._next)
        if not connection.is_place_kept and self._contract.is_acknowledged:
            self.sessions_lost += 1
            print(f"the place of {self.link} is lost, or was never made", file=sys.stderr)

    def _lose(self) -> None:
        self.position()  # of records, also where it is idle
        self._listener.start_over()

    def _note_end(self, ended: LogReader, now: float) -> None:
        if ended.topic is not None and isinstance(ended.error, _GONE):
            reached = {**_name(ended.topic, ended.starts), **self._reached}
            self._reached = go_back(reached, ended.topic, ended.error)
        super()._note_end(ended, now)

    # -- for the source

    @property
    def has_waiting(self) -> bool:
        return self.ready and self.current is not None and bool(self.current.inbox)

    def poll(self) -> Incoming:
        assert self.current is not None
        self.trust()
        message = self.current.inbox.popleft()
        self.current.bytes_taken += len(message.payload) + _OVERHEAD
        if len(self.current.inbox) == self._contract.receive_maximum // 2 or not self.current.inbox:
            self.current.go_on()
        return message

    def keep(self, message: Incoming) -> None:
        part, offset, term = message.place
        self._next[part] = Place(offset + 1, None if term == _UNKNOWN else term)

    def position(self) -> Position:
        """Until a connection knows better, where the state, or the last connection, has ended."""
        current = self.current
        if not self.ready or current is None or current.topic is None:
            return self._reached or self._restored
        idle = current.idle  # before looking at the inbox: that has had all before it
        is_drained = not current.inbox
        for part, place in self._next.items():
            if is_drained and idle.get(part, 0) > place.offset:
                self._next[part] = Place(idle[part])  # a marker may be of a later term
        self._reached = _name(current.topic, self._next)
        return self._reached

    def acknowledge(self) -> None:
        """The report of what was taken does it."""

    def report(self, report: TakenReport) -> bool:
        current = self.current
        if current is None or current.topic is None:
            return False
        places = {
            part: report.position[series]
            for part in current.topic.parts
            if (series := current.topic.series(part)) in report.position
        }
        current.commit((places, write_metadata(report, current.topic.id)))
        return True

    @property
    def has_reported(self) -> bool:
        return self.current is None or not self.current.is_committing


def _name(topic: LinkTopic, places: Mapping[int, Place]) -> Position:
    """By series."""
    return {topic.series(part): place for part, place in places.items()}
