"""The flow of messages on each link, from the sequence numbers that readers publish."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speck.binding import MessageBroker
from speck.errors import SpeckError
from speck.model.observation import BrokerView

_SPAN_S = 5.0
"""The span over which rates are computed: readers publish their numbers once per checkpoint."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reader on one link of a composition, and the jobs that write to the link."""

    site: str
    topic: str
    reader: str
    writers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """The current flow of a reading: messages received since its session started, messages per
    second, and unread messages.

    `lag` is None if the writers are not jobs, or have not published their numbers yet.
    """

    reading: Reading
    messages: int
    per_s: float
    lag: int | None


class Flows:
    """Polls the sequence numbers that are retained at the brokers.

    `brokers` is by site name; the flows of a broker that does not answer are omitted.
    """

    def __init__(self, brokers: Mapping[str, MessageBroker], readings: Sequence[Reading]):
        self._brokers = brokers
        self._readings = readings
        self._polls: dict[Reading, deque[tuple[float, int]]] = defaultdict(deque)

    def poll(self) -> list[Flow]:
        """Every current flow, in the order of the readings."""
        views: dict[str, BrokerView] = {}
        for site, broker in self._brokers.items():
            try:
                views[site] = broker.view()
            except SpeckError:
                continue
        now = time.monotonic()
        return [
            self._flow(reading, views[reading.site], now)
            for reading in self._readings
            if reading.site in views
        ]

    def _flow(self, reading: Reading, view: BrokerView, now: float) -> Flow:
        mine = [
            (client, taken)
            for client, taken in view.taken.items()
            if _is_of(client, reading.reader)
        ]
        messages = sum(taken.messages for _, taken in mine)
        polls = self._polls[reading]
        polls.append((now, messages))
        while now - polls[0][0] > _SPAN_S and len(polls) > 2:
            polls.popleft()
        then, before = polls[0]
        rate = max(0.0, (messages - before) / (now - then)) if now > then else 0.0
        sinks = [
            client
            for client in view.sent
            if any(_is_of(client.removesuffix("-out"), w) for w in reading.writers)
        ]
        lag = view.lag(mine[0][0], reading.topic, sinks) if mine and sinks else None
        return Flow(reading, messages, rate, lag)


def _is_of(client_id: str, job_name: str) -> bool:
    """Whether `speck-<installation>-<job>-<link>` names the job."""
    return client_id.split("-", 2)[-1].rsplit("-", 1)[0] == job_name
