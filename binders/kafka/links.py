"""Kafka's links for programs that are no jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

from kafka import KafkaProducer
from kafka.errors import KafkaError

from binders.kafka import groups
from binders.kafka.answers import explain
from binders.kafka.client import Client
from binders.kafka.log_reader import STAMP, LogReader, record_of
from binders.kafka.logs import make_link
from binders.kafka.places import begin, find_there, write_report
from speck.binding import LinkReader, LinkWriter, Login, Outgoing, Target, WriterOptions
from speck.errors import PermanentError, SpeckError, TransientError
from speck.model.record import Record
from speck.sites.credentials import Credentials

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_READ_S = 0.1
_FOR_EVER_MS = 1 << 31
"""A writer's patience is its own."""


class KafkaLinks:
    """The links of the cluster at `kafka://host:port` or `kafka+ssl://host:port`."""

    def __init__(self, address: str, login: Login | None = None):
        if login is not None and not isinstance(login, Credentials):
            login = Credentials(login.user, login.password, login.tls)
        self._client = Client(Target(address, timeout_s=_TIMEOUT_S), login or Credentials())

    def writer(
        self, options: WriterOptions, on_acked: Callable[[Outgoing, bool], None]
    ) -> LinkWriter:
        """A producer; not connected yet."""
        return KafkaWriter(self._client, options, on_acked)

    def reader(
        self,
        topic: str,
        name: str,
        on_record: Callable[[Record], None],
        on_damaged: Callable[[bytes], None],
    ) -> LinkReader:
        """A consumer of the group `name`, which is read at once."""
        return KafkaReader(self._client, topic, name, on_record, on_damaged)


class KafkaWriter:
    """One producer, which stays with one partition of a topic. Kafka's client itself sends again
    what was not acknowledged, once and in order; what was, is in the log of all replicas."""

    def __init__(
        self,
        client: Client,
        options: WriterOptions,
        on_acked: Callable[[Outgoing, bool], None],
    ) -> None:
        self.refused = self.resent = 0
        self._client, self._options, self._on_acked = client, options, on_acked
        self._producer: KafkaProducer | None = None
        self._pending = 0
        self._outcomes: deque[tuple[Outgoing, KafkaError | None]] = deque()
        """What the producer's own thread has heard."""
        self._parts: dict[str, int] = {}
        self._failure: SpeckError | None = None
        self._progress = time.monotonic()

    def connect(self) -> None:
        """Open the producer. Raises UnreachableError when nobody listens."""
        settings = {
            "client_id": self._options.name,
            "enable_idempotence": True,
            "linger_ms": 2,
            "batch_size": 1 << 18,
            "delivery_timeout_ms": _FOR_EVER_MS,
        }
        self._producer = self._client.producer(settings, time.monotonic() + _TIMEOUT_S)

    @property
    def ready(self) -> bool:
        """Whether a new record may be sent now."""
        return self._producer is not None and self._pending < self._options.window

    @property
    def drained(self) -> bool:
        """Whether everything sent was acknowledged."""
        return not self._pending

    def send(self, record: Outgoing) -> None:
        """Send a record; its topic is made unless it is there."""
        assert self._producer is not None
        topic = record.topic
        if topic not in self._parts:
            parts = make_link(self._client.begin(), topic).parts
            self._parts[topic] = crc32(self._options.name.encode()) % len(parts)
        if self.drained:
            self._progress = time.monotonic()  # patience counts from the first pending record
        headers = [(STAMP, record.stamp.encode())]
        try:
            future = self._producer.send(
                topic, record.payload, headers=headers, partition=self._parts[topic]
            )
        except KafkaError as error:
            raise explain(error, self._client.address, f"publish to {topic}") from error
        self._pending += 1
        future.add_callback(lambda _: self._outcomes.append((record, None)))
        future.add_errback(lambda error: self._outcomes.append((record, error)))

    def fileno(self) -> int:
        """There is no file: the client has threads of its own."""
        return -1

    def want_write(self) -> bool:
        return False

    def read(self) -> None: ...
    def write(self) -> None: ...

    def tend(self) -> None:
        """Take the acknowledgements that have come.

        Raises BrokerRefusedError, and TransientError when the broker accepted nothing for too long.
        """
        while self._outcomes:
            self._take(*self._outcomes.popleft())
        if self._failure is not None:
            raise self._failure
        if self._pending and time.monotonic() - self._progress > self._options.patience_s:
            raise TransientError(
                f"cannot publish to {self._client.address}: the broker of {self._options.label}"
                f" does not answer since {self._options.patience_s:g} s; fix that and try again"
            )

    def _take(self, record: Outgoing, error: KafkaError | None) -> None:
        self._pending -= 1
        if error is not None:
            doing = f"publish to {record.topic}"
            self._failure = self._failure or explain(error, self._client.address, doing)
            return
        self._progress = time.monotonic()
        first, record.acked = not record.acked, True
        self._on_acked(record, first)

    def close(self) -> None:
        """Give up what is not acknowledged, and disconnect."""
        if self._producer is not None:
            self._producer.close(timeout=0)
            self._producer = None


class KafkaReader:
    """Hands over the records of one topic until it is closed; the group's place stays."""

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        on_record: Callable[[Record], None],
        on_damaged: Callable[[bytes], None],
    ) -> None:
        self._client, self._topic, self._name = client, topic, name
        self._on_record, self._on_damaged = on_record, on_damaged
        call = client.begin()
        link = make_link(call, topic)
        there = find_there(groups.read_offsets(call, [name])[name].get(topic, {}), link)
        self._report = write_report(id=link.id)
        offsets = begin(link, None)
        if there is None:
            groups.commit(call, name, topic, offsets, self._report)
        else:
            offsets |= {
                part: max(place.offset, link.parts[part].start) for part, place in there.items()
            }
        self._reader = LogReader(client, topic, offsets, call.deadline)
        self._over = threading.Event()
        self._failure: SpeckError | None = None
        self._thread = threading.Thread(target=self._run, name=f"reads {topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._reader as reader:
                while not self._over.is_set():
                    messages = reader.read(_READ_S)
                    for message in messages:
                        self._hand_over(message)
                    if messages:
                        self._commit(reader.positions)
        except SpeckError as error:
            self._failure = error

    def _commit(self, positions: dict[int, int]) -> None:
        """While the broker is away the place stays behind: what comes again are repeats."""
        try:
            call = self._client.begin()
            groups.commit(call, self._name, self._topic, positions, self._report)
        except TransientError as error:
            log.info("%s", error)

    def _hand_over(self, message: Any) -> None:
        try:
            record = record_of(message)
        except PermanentError:
            self._on_damaged(bytes(message.value or b""))
            return
        self._on_record(record)

    def __enter__(self) -> KafkaReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure
