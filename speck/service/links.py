"""Records of links, for people who look on: what `speck pub` sends and `speck sub` shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Annotated

from speck.binding import MessageBroker, topic_fault
from speck.clock import never
from speck.errors import InvalidError, Problem
from speck.model.record import Record
from speck.model.shown import Shown
from speck.sites.connections import Connections

MOST_RECORDS = 1000
MOST_S = 60.0
MOST_BYTES = 1 << 20
"""What one tap returns at most: bytes of payloads; the record that exceeds them is the last."""


@dataclass(frozen=True, slots=True)
class Published:
    """Records that were published to a link."""

    site: Annotated[str, Shown("the site of the link's broker")]
    topic: Annotated[str, Shown("the link's topic")]
    sent: Annotated[int, Shown("records published")]
    unread: Annotated[int, Shown("of these, the records that found no reader, and are lost")]


@dataclass(frozen=True, slots=True)
class Tapped:
    """Records that were published to a link meanwhile. `complete`: whether these are all of the
    time that was asked for."""

    site: str
    topic: str
    complete: bool
    records: tuple[Record, ...]


class Links:
    """Sends and shows records at the brokers of registered sites."""

    def __init__(self, connections: Connections, closing: Event):
        """`closing` is set once the service ends."""
        self._connections = connections
        self._closing = closing

    def publish(self, site: str, topic: str, payloads: Sequence[bytes]) -> Published:
        """Publish records, in their order. Raises SpeckError when the broker does not take them:
        some may have been published then."""
        unread = self._broker("publish to", site, topic).publish(topic, payloads)
        return Published(site, topic, len(payloads), unread)

    def tap(
        self,
        site: str,
        topic: str,
        most: int,
        seconds: float,
        gives_up: Callable[[], bool] = never,
    ) -> Tapped:
        """Collect up to `most` records that are published within `seconds`, or until somebody gives
        up: then it is not `complete`, and more may have been published. Raises SpeckError."""
        records: list[Record] = []
        size = 0
        until = time.monotonic() + seconds

        def is_ending() -> bool:
            return self._closing.is_set() or gives_up()

        def is_full() -> bool:
            return len(records) >= most or size >= MOST_BYTES

        def go_on() -> bool:
            return time.monotonic() < until and not (is_full() or is_ending())

        def keep(record: Record) -> None:
            nonlocal size
            if not is_full():
                records.append(record)
                size += len(record.payload)

        self._broker("read", site, topic).tap(topic, keep, go_on)
        return Tapped(site, topic, not (is_full() or is_ending()), tuple(records))

    def _broker(self, act: str, site: str, topic: str) -> MessageBroker:
        """The broker of a site. Raises InvalidError for a topic that is none at brokers of its
        kind: one of them might make another of it."""
        kind = self._connections.site(site).broker.kind
        if fault := topic_fault(kind, topic):
            raise InvalidError(
                f"cannot {act} the link: topic {fault} (broker of kind {kind} of site {site})",
                [Problem("topic", fault)],
            )
        return self._connections.broker(site)
