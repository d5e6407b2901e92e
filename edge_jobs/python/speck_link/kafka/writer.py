"""Writes to one partition of a topic, in order."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaProducer, errors
from kafka.partitioner.default import murmur2

from speck_link.arguments import Contract, Link, producer_of_sink
from speck_link.kafka.client import OpenClient, explain
from speck_link.kafka.connection import KafkaEnd, LogConnection, Signal
from speck_link.kafka.tail import read_tail
from speck_link.kafka.topic import find_or_make
from speck_link.sent import SentNumber, SentRecords
from speck_link.transport import Outcome, WriterListener

_LOOK_S = 0.5
_FLUSH_S = 2.0
_BATCH_BYTES = 64 << 10
_AROUND_BATCH, _AROUND_RECORD = 61, 40
"""Bytes around the records of a batch, and around a record with its header."""
_LARGEST_REQUEST = 128 << 20
_TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


class Answer(NamedTuple):
    """What the producer says of a record."""

    key: int
    offset: int
    error: Exception | None


class LogWriter(LogConnection):
    """A connection: a producer. Its own thread leaves its answers in a queue."""

    def __init__(
        self, link: Link, signal: Signal, *, acknowledged: bool, doubtful: SentNumber | None
    ) -> None:
        super().__init__(link, signal)
        self._acknowledged, self._doubtful = acknowledged, doubtful
        self._opened: OpenClient | None = None
        self._part = 0
        self.confirmed: SentRecords | None = None
        """What the log has; None: nothing, or nobody wanted to know."""
        self.max_payload = 0
        self.answers: deque[Answer] = deque()
        self.broken: Exception | None = None

    def open(self) -> None:
        admin = OpenClient(KafkaAdminClient, self.link)
        try:
            topic = find_or_make(admin.client, self.link.topic)
        finally:
            admin.close()
        self._part = topic.parts[choose_index(self.link.client_id, len(topic.parts))]
        self.max_payload = topic.max_message_bytes - _AROUND_BATCH - _AROUND_RECORD
        self._opened = OpenClient(
            KafkaProducer,
            self.link,
            enable_idempotence=self._acknowledged,
            acks="all" if self._acknowledged else 1,
            max_block_ms=5000,
            request_timeout_ms=15_000,
            delivery_timeout_ms=120_000,
            max_request_size=_LARGEST_REQUEST,
            batch_size=min(_BATCH_BYTES, topic.max_message_bytes),
            linger_ms=2,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        self._opened.client.partitions_for(topic.name)  # nothing has to wait for it then
        if self._doubtful is not None:
            self.confirmed = read_tail(self.link, topic, self._part, self._doubtful) or None

    def serve(self) -> None:
        assert self._opened is not None
        if self.broken is not None:
            raise self.broken
        self.look(self._opened)
        self.wait(_LOOK_S)

    def send(self, key: int, payload: bytes, stamp: str) -> None:
        """Send a record; by the job's thread."""
        assert self._opened is not None
        headers = [("speck", stamp.encode())]
        try:
            future = self._opened.client.send(
                self.link.topic, payload, headers=headers, partition=self._part
            )
        except Exception as error:
            self._answer(key, -1, error)
            return
        future.add_callback(partial(self._note_written, key))
        future.add_errback(partial(self._answer, key, -1))

    def _note_written(self, key: int, written: Any) -> None:
        self._answer(key, written.offset, None)

    def _answer(self, key: int, offset: int, error: Exception | None) -> None:
        """What comes after the end is nothing: it will be sent again."""
        if not self.is_ended:
            self.answers.append(Answer(key, offset, error))
            self._signal.set()

    def break_off(self, error: Exception) -> None:
        """It cannot be used any more."""
        self.broken = error
        self._awake.set()

    def release(self) -> None:
        if self._opened is None:
            return
        producer = self._opened.client
        if self.error is None:
            self._opened.close(timeout=_FLUSH_S)
        if not producer._closed:
            # `close` fails, and leaves its thread running, while anything is under way
            producer._sender.force_close()
            producer._sender.join(_FLUSH_S)
            self._opened.close(timeout=0)


class KafkaWriter(KafkaEnd[LogWriter]):
    """The writer of a link. A message's key is a number of its own."""

    doing = "write to"
    takes_batches = False  # the producer makes its own
    keeps_log = True
    is_reporting = False
    size_setting = "max.message.bytes of the topic"

    def __init__(self, contract: Contract, link: Link, listener: WriterListener) -> None:
        super().__init__(link)
        self._contract, self._listener = contract, listener
        self._stamp_bytes = len(link.client_id.encode()) + 60  # its producer is a part of it
        self._last_key, self._last_offset = 0, -1
        self.most_in_flight = contract.sink_window
        self.max_payload = _LARGEST_REQUEST
        self.bytes_sent = 0

    def _connect(self) -> LogWriter:
        return LogWriter(
            self.link,
            self.signal,
            acknowledged=self._contract.is_acknowledged,
            doubtful=self._listener.oldest_doubtful,
        )

    def _begin(self, connection: LogWriter) -> None:
        self.max_payload = connection.max_payload - self._stamp_bytes
        self._last_offset = -1
        self._listener.admit()
        self._listener.status.confirmed = connection.confirmed
        self._listener.begin()

    def _lose(self) -> None:
        self._listener.start_over(is_guilty=False)

    def send(self, payload: bytes, stamp: str, content_type: str | None) -> int | None:
        assert self.current is not None
        self._last_key += 1
        self.bytes_sent += _AROUND_RECORD + len(payload) + len(stamp)
        self.current.send(self._last_key, payload, stamp)
        return self._last_key

    def _take(self) -> None:
        current = self.current
        if current is None or not self.ready:
            return
        while current.answers and current.broken is None:
            self._settle(current, current.answers.popleft())

    def _settle(self, current: LogWriter, answer: Answer) -> None:
        """The library's producer takes nothing any more after an error, and fails all that it has
        with that error: only the first one means its record. What is refused is tried again over
        the next connection."""
        key, offset, error = answer
        if error is None:
            self.trust()
            self._listener.settle(key, Outcome.TAKEN)
            self._note_offset(current, offset)
            return
        current.break_off(error)
        if isinstance(error, _TOO_LARGE):
            self._listener.settle(key, Outcome.TOO_LARGE, explain(error))

    def _note_offset(self, current: LogWriter, offset: int) -> None:
        """A log that has become shorter has lost what it had acknowledged: that is sent again over
        the next connection."""
        if offset < 0:
            return  # it does not say where: the broker had it before
        if offset <= self._last_offset:
            current.break_off(
                errors.KafkaError(
                    "the log was cut, or made anew: offset"
                    f" {offset} comes after {self._last_offset}"
                )
            )
        self._last_offset = offset

    def report(self, payload: bytes) -> bool:
        """What a writer has sent lies in the log."""
        return True


def choose_index(client_id: str, count: int) -> int:
    """Which of so many partitions the records of a job go to: all to one, so that they are in
    order."""
    return int((murmur2(producer_of_sink(client_id).encode()) & 0x7FFFFFFF) % count)
