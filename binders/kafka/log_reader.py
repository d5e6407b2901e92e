"""Reads a topic from given offsets, beside all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from binders.kafka.answers import explain, is_passing
from binders.kafka.client import Client
from speck.errors import PermanentError
from speck.model.record import Record

STAMP = "speck"
"""The header of a record that holds its stamp."""


class LogReader:
    """A consumer of the partitions of `offsets`, until the end of a `with`; in no group."""

    def __init__(
        self, client: Client, topic: str, offsets: Mapping[int, int], deadline: float
    ) -> None:
        """Raises SpeckError if it cannot connect by the deadline."""
        self._client, self._topic = client, topic
        self._parts = {part: TopicPartition(topic, part) for part in offsets}
        self._consumer = client.consumer(deadline)
        self._consumer.assign(list(self._parts.values()))
        for part, offset in offsets.items():
            self._consumer.seek(self._parts[part], offset)

    def read(self, timeout_s: float) -> list[Any]:
        """The next records of Kafka, none after `timeout_s`. Raises SpeckError if the broker
        refuses; while it is away there are none."""
        try:
            batches = self._consumer.poll(timeout_ms=int(1000 * timeout_s))
        except OffsetOutOfRangeError as error:  # what it was to read has been deleted
            self._consumer.seek_to_beginning(*error.args[0])
            return []
        except KafkaError as error:
            if is_passing(error):
                return []
            raise explain(error, self._client.address, f"read {self._topic}") from error
        return [record for records in batches.values() for record in records]

    @property
    def positions(self) -> dict[int, int]:
        """The offsets behind all that was read, by partition: also behind what is no record."""
        return {part: self._consumer.position(each) for part, each in self._parts.items()}

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def record_of(message: Any) -> Record:
    """The record that a record of Kafka is. Raises PermanentError if its stamp is no text."""
    stamp = dict(message.headers or ()).get(STAMP)
    try:
        text = None if stamp is None else stamp.decode()
    except UnicodeDecodeError as error:
        raise PermanentError(f"cannot read a record: its stamp is no text: {error}") from error
    return Record(text, bytes(message.value or b""))
