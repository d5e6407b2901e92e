"""Reads the output of an application, under the session reserved for it."""

from __future__ import annotations

import json
import threading
from typing import Any

from speck.binding import open_links
from speck.fog.publisher import find_broker
from speck.model.record import Record
from speck.model.values import JsonObject
from speck.sites.credentials import Credentials


class OutputReader:
    """Collects the JSON records of one topic until it is closed; the session continues to exist.

    `broker` is an address. Payloads that are not JSON are collected in `unreadable`.
    """

    def __init__(self, broker: str, topic: str, client_id: str, login: Credentials | None = None):
        self.topic = topic
        self.unreadable: list[bytes] = []
        self._records: list[JsonObject] = []
        self._lock = threading.Lock()
        self._reader = open_links(*find_broker(broker), login).reader(
            topic, client_id, self._keep, self.unreadable.append
        )

    def records(self) -> list[JsonObject]:
        """The records received so far, in order."""
        with self._lock:
            return list(self._records)

    def __enter__(self) -> OutputReader:
        return self

    def __exit__(self, *error: Any) -> None:
        self._reader.__exit__(*error)

    def _keep(self, message: Record) -> None:
        try:
            record = json.loads(message.payload)
        except ValueError:
            self.unreadable.append(message.payload)
            return
        with self._lock:
            self._records.append(record)
