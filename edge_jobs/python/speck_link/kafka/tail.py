"""Finds in a log what a writer has sent: nobody else says it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import OffsetOutOfRangeError

from speck_link.arguments import Link
from speck_link.kafka.client import CALL_MS, FETCH_SETTINGS, OpenClient
from speck_link.kafka.topic import LinkTopic
from speck_link.sent import SeenNumbers, SentNumber
from speck_link.taken import parse_number

_PIECES = (1000, 10_000, 100_000)
_POLL_MS = 250
_PATIENCE_S = 15.0
_SETTINGS = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
    **FETCH_SETTINGS,
}


def read_tail(link: Link, topic: LinkTopic, part: int, oldest: SentNumber) -> SeenNumbers:
    """What is to be seen of the numbers of a writer from the `oldest` in question on. Raises
    KafkaError when the broker cannot be reached, or refuses."""
    opened = OpenClient(KafkaConsumer, link, **_SETTINGS)
    try:
        return LogTail(opened.client, topic.partition(part), oldest).read()
    finally:
        opened.close()


class LogTail:
    """Reads the end of a log, a longer piece each time, back to a record that was sent no later
    than the oldest in question. It ends early when the time is over, as it is soon over a slow
    network where many others write: what was not seen is sent again then."""

    def __init__(
        self,
        consumer: Any,
        tp: Any,
        oldest: SentNumber,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer, self._tp, self._oldest, self._clock = consumer, tp, oldest, clock
        self._seen = SeenNumbers(oldest.producer)

    def read(self) -> SeenNumbers:
        self._consumer.assign([self._tp])
        (first,) = self._consumer.beginning_offsets([self._tp], timeout_ms=CALL_MS).values()
        (end,) = self._consumer.end_offsets([self._tp], timeout_ms=CALL_MS).values()
        deadline, upto = self._clock() + _PATIENCE_S, end
        for piece in _PIECES:
            begin = max(first, end - piece)
            is_complete = self._read_between(begin, upto, deadline)
            if not is_complete or begin == first or self._seen.reach_back_to(self._oldest):
                break
            upto = begin
        return self._seen

    def _read_between(self, first: int, end: int, deadline: float) -> bool:
        """Returns whether all of the piece could be read."""
        self._consumer.seek(self._tp, first)
        while not self._is_at(end):
            try:
                polled = self._consumer.poll(timeout_ms=_POLL_MS)
            except OffsetOutOfRangeError:  # it was deleted meanwhile
                return False
            for record in (record for records in polled.values() for record in records):
                stamp = stamp_of(record) if record.offset < end else None
                number = None if stamp is None else parse_stamp(stamp)
                if number is not None:
                    self._seen.add(number)
            if self._clock() > deadline:
                return self._is_at(end)
        return True

    def _is_at(self, end: int) -> bool:
        position = self._consumer.position(self._tp, timeout_ms=_POLL_MS)
        return position is not None and position >= end


def stamp_of(record: Any) -> str | None:
    """The stamp of a record of Kafka."""
    value = next((value for name, value in reversed(record.headers) if name == "speck"), None)
    return None if value is None else value.decode("utf-8", "replace")


def parse_stamp(stamp: str) -> SentNumber | None:
    """The stamp of one record; None if it is none."""
    producer, epoch, number = ("", "", *stamp.rsplit("/", 2))[-3:]
    if not producer or parse_number(epoch) < 0 or parse_number(number) < 1:
        return None
    return SentNumber(producer, int(epoch), int(number))
