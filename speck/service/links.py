"""Records of links, for people who look on: what `speck pub` sends and `speck sub` shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event

from speck.clock import never
from speck.model.batches import Record, render_record
from speck.model.values import JsonObject
from speck.sites.connections import Connections

MOST_RECORDS = 1000
MOST_S = 60.0
MOST_BYTES = 1 << 20
"""What one tap returns at most: bytes of payloads; the record that exceeds them is the last."""


class Links:
    """Sends and shows records at the brokers of registered sites."""

    def __init__(self, connections: Connections, closing: Event):
        """`closing` is set once the service ends."""
        self._connections = connections
        self._closing = closing

    def publish(self, site: str, topic: str, payloads: Sequence[bytes]) -> JsonObject:
        """Publish records, in their order; `unread`: how many found no reader. Raises SpeckError
        when the broker does not take them: some may have been published then."""
        unread = self._connections.broker(site).publish(topic, payloads)
        return {"site": site, "topic": topic, "sent": len(payloads), "unread": unread}

    def tap(
        self,
        site: str,
        topic: str,
        most: int,
        seconds: float,
        gives_up: Callable[[], bool] = never,
    ) -> JsonObject:
        """Collect up to `most` records that are published within `seconds`, or until somebody gives
        up. `complete` is False when the tap ended before that time: more may have been published.
        Raises SpeckError."""
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

        self._connections.broker(site).tap(topic, keep, go_on)
        return {
            "site": site,
            "topic": topic,
            "complete": not (is_full() or is_ending()),
            "records": [render_record(record) for record in records],
        }
