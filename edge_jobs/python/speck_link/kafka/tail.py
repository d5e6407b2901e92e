"""Finds in a log what a writer has sent last: nobody else says it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from speck_link.arguments import Link, producer_in_port, producer_of_sink
from speck_link.kafka.client import CALL_MS, OpenClient
from speck_link.kafka.topic import LinkTopic
from speck_link.link_status import SentNumber
from speck_link.taken import parse_number

_PIECES = (1000, 10_000, 100_000)
_POLL_MS = 250
_PATIENCE_S = 15.0
_SETTINGS = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "fetch_max_bytes": 4 << 20,
    "metrics_enabled": False,
}


def find_last(link: Link, topic: LinkTopic, part: int) -> SentNumber | None:
    """The last number that a writer has in a partition; None if there is none among the last
    100 000 records. Raises KafkaError when it cannot be read."""
    opened = OpenClient(KafkaConsumer, link, **_SETTINGS)
    try:
        tp = topic.partition(part)
        opened.client.assign([tp])
        (first,) = opened.client.beginning_offsets([tp], timeout_ms=CALL_MS).values()
        (end,) = opened.client.end_offsets([tp], timeout_ms=CALL_MS).values()
        prefixes = list_prefixes(link)
        return search_backwards(
            first, end, lambda begin, upto: _find_between(opened.client, tp, begin, upto, prefixes)
        )
    finally:
        opened.close()


def list_prefixes(link: Link) -> tuple[str, ...]:
    """How the stamps of a writer of this link may begin."""
    return f"{producer_of_sink(link.client_id)}/", f"{producer_in_port(link.client_id)}/"


def search_backwards(
    first: int, end: int, look: Callable[[int, int], SentNumber | None]
) -> SentNumber | None:
    """Look into the end of a log, a longer piece each time."""
    upto = end
    for piece in _PIECES:
        begin = max(first, end - piece)
        last = look(begin, upto) if begin < upto else None
        if last is not None or begin == first:
            return last
        upto = begin
    return None


def _find_between(
    consumer: Any, tp: Any, first: int, end: int, prefixes: tuple[str, ...]
) -> SentNumber | None:
    last = None
    deadline = time.monotonic() + _PATIENCE_S
    consumer.seek(tp, first)
    while (position := consumer.position(tp, timeout_ms=_POLL_MS)) is None or position < end:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                stamp = stamp_of(record)
                if record.offset < end and stamp is not None and stamp.startswith(prefixes):
                    last = parse_stamp(stamp) or last
        if time.monotonic() > deadline:
            raise KafkaError("the end of the log cannot be read")
    return last


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
