"""What a state has of messages that are to be published, or may have to be sent again; and how a
thread waits until their brokers have them."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterable, Sequence

from speck_link.arguments import Contract, Link
from speck_link.messages import SENT, UNSENT, Message
from speck_link.sink import Sink
from speck_link.state import Row
from speck_link.transport import End


def name_link(link: Link, producer: str | None) -> str:
    """How a state names a link, and the producer of its numbers, if that is not the job's."""
    return json.dumps([*(link.broker, link.topic, link.client_id), *filter(None, [producer])])


def part(rows: Iterable[Row], contract: Contract) -> tuple[dict[str, list[Row]], list[Row]]:
    """Those of a job's own links, by client id, and those that are left for others: also for one of
    its own, if they are numbered under another producer."""
    producers = {link.client_id: contract.producer_of(link) for link in contract.port}
    own: dict[str, list[Row]] = {client_id: [] for client_id in producers}
    others: list[Row] = []
    for row in rows:
        _, _, client_id, producer = (*json.loads(row[1]), contract.producer)[:4]
        is_own = producers.get(client_id) == producer
        (own[client_id] if is_own else others).append(row)
    return own, others


def by_link(rows: Iterable[Row]) -> list[tuple[Link, str | None, list[Row]]]:
    """Those that were never published, by their links and producers."""
    links: dict[str, list[Row]] = {}
    for row in rows:
        if row[7] == UNSENT:
            links.setdefault(row[1], []).append(row)
    named = ((*json.loads(name), None) for name in links)
    return [
        (Link(*name[:3]), name[3], of_link)
        for name, of_link in zip(named, links.values(), strict=True)
    ]


def give(rows: Iterable[Row], sink: Sink) -> None:
    """Let a sink go on with them."""
    messages = [Message.from_row(row) for row in rows]
    sink.restore([message for message in messages if message.stored == SENT])
    unsent = [message for message in messages if message.stored == UNSENT]
    if unsent:
        sink.doubt(unsent[0])
    for message in unsent:
        sink.add(message)


def wait(ends: Sequence[End], pause_s: float) -> float:
    """Wait for something to read or write, and do it; returns the seconds that it waited."""
    reads = [each for each in ends if each.fileno() >= 0 and not each.is_full]
    writes = [each for each in ends if each.fileno() >= 0 and each.wants_write()]
    began = time.perf_counter()
    try:
        readable, writable, _ = select.select(reads, writes, (), pause_s)
    except (OSError, ValueError):  # a socket was closed meanwhile
        readable, writable = [], []
    waited = time.perf_counter() - began
    for each in readable:
        each.read()
    for each in writable:
        each.write()
    return waited
