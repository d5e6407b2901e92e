"""The retained topics in which jobs and the control plane publish their sequence numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from speck.model.measurement import BrokerMeasures, cut_problem
from speck.model.observation import BrokerView, Ranges, Sent, Taken

TAKEN = "speck/taken/"
SENT = "speck/sent/"
READERS = "speck/readers/"
SESSIONS = "speck/sessions/"
"""Below it, by topic and client id: the session was made. The broker saves it with the session."""
MADE = b"made"
MARKS = "speck/marks/"
AGAIN = b"again"
COMPLETE = b"complete"
MARKER = "speck/marker/"
BROKER = "speck/broker"
"""The broker's identity. It is saved with the sessions."""
_IDENTITY = re.compile("[0-9a-f]{32}")
PROBE = "speck/probe/"
RETAINED = (TAKEN, SENT, READERS, SESSIONS)
UPTIME = "$SYS/broker/uptime"
BRIDGES = "$SYS/broker/connection/+/state"
_BRIDGE, _STATE = BRIDGES.split("+")
DROPPED = "$SYS/broker/publish/messages/dropped"

_BROKER = "$SYS/broker/"
TOTALS = {
    f"{_BROKER}publish/messages/received": "messages_in",
    f"{_BROKER}publish/messages/sent": "messages_out",
    f"{_BROKER}bytes/received": "bytes_in",
    f"{_BROKER}bytes/sent": "bytes_out",
    DROPPED: "dropped",
    f"{_BROKER}clients/connected": "clients",
    UPTIME: "uptime_s",
}
_SYS_S = 60.0
"""The greatest age of values in $SYS: `sys_interval` is 10 s by default."""

STORED = f"{_BROKER}store/messages/count"
RETAINED_COUNT = f"{_BROKER}retained messages/count"


class Totals:
    """Collects the values of a broker's $SYS topics.

    Mosquitto publishes only values that have changed, and lets them expire after a minute. Missing
    values are those of `before`, unless the broker has restarted since: then its uptime is too low.
    """

    topics = (*TOTALS, STORED, RETAINED_COUNT)

    def __init__(self, before: Mapping[str, int], elapsed_s: float = 0.0) -> None:
        """`before` are the values of `elapsed_s` seconds ago."""
        self._before = before
        self._elapsed_s = elapsed_s
        self._received: dict[str, int] = {}

    def add(self, topic: str, payload: bytes) -> None:
        """Add one message. Raises ValueError if it holds no number."""
        self._received[topic] = _count(payload)

    def values(self) -> dict[str, int]:
        """The current values by topic."""
        uptime_s = self._received.get(UPTIME)
        least_uptime_s = self._before.get(UPTIME, 0) + max(0.0, self._elapsed_s - _SYS_S)
        if uptime_s is None or uptime_s < least_uptime_s:
            return dict(self._received)
        return {**self._before, **self._received}

    def measures(self) -> BrokerMeasures:
        """The values as measures. The broker's store holds queued and retained messages, and for
        a moment those of a poll."""
        values = self.values()
        stored, retained = values.get(STORED), values.get(RETAINED_COUNT)
        queued = None if stored is None or retained is None else max(0, stored - retained)
        totals = {name: values.get(topic) for topic, name in TOTALS.items()}
        return BrokerMeasures(queued=queued, **totals)


class Retained:
    """Collects the messages of a broker's retained topics."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._sent: dict[str, Sent] = {}
        self._readers: dict[str, bool] = {}
        self._sessions: dict[tuple[str, str], bool] = {}
        self._uptime_s: int | None = None
        self._dropped: int | None = None
        self._identity: str | None = None
        self._bridges: set[str] = set()

    def add(self, topic: str, payload: bytes) -> None:
        """Add one message; an empty one clears. Raises ValueError if it cannot be parsed."""
        if topic.startswith(TAKEN):
            _put(self._taken, topic.removeprefix(TAKEN), parse_taken(payload) if payload else None)
        elif topic.startswith(SENT):
            _put(self._sent, topic.removeprefix(SENT), parse_sent(payload) if payload else None)
        elif topic.startswith(SESSIONS):
            link_topic, _, client_id = topic.removeprefix(SESSIONS).rpartition("/")
            _put(self._sessions, (client_id, link_topic), bool(payload) or None)
        elif topic.startswith(READERS) and payload not in (AGAIN, COMPLETE):
            _put(
                self._readers, topic.removeprefix(READERS), payload == b"some" if payload else None
            )
        elif topic == BROKER:
            self._identity = read_identity(payload)
        elif (bridge := read_bridge(topic)) is not None:
            self._bridges.add(bridge)
        elif topic == UPTIME:
            self._uptime_s = _count(payload)
        elif topic == DROPPED:
            self._dropped = _count(payload)

    def view(self) -> BrokerView:
        """The collected numbers."""
        return BrokerView(
            self._taken,
            self._sent,
            self._uptime_s,
            self._dropped,
            self._readers,
            frozenset(self._sessions),
            self._identity,
            frozenset(self._bridges),
        )


K = TypeVar("K")
T = TypeVar("T")


def read_identity(payload: bytes) -> str | None:
    """The identity in a message on `BROKER`; None if it is not one of speck's."""
    identity = payload.decode(errors="replace")
    return identity if _IDENTITY.fullmatch(identity) else None


def read_bridge(topic: str) -> str | None:
    """The name of the bridge whose state is published on `topic`; None if it is another topic."""
    if not (topic.startswith(_BRIDGE) and topic.endswith(_STATE)):
        return None
    return topic.removeprefix(_BRIDGE).removesuffix(_STATE)


def session_topic(topic: str, client_id: str) -> str:
    """Where a reader's session on a link is announced."""
    return f"{SESSIONS}{topic}/{client_id}"


def _put(values: dict[K, T], key: K, value: T | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def parse_taken(payload: bytes) -> Taken:
    """Parse a reader's numbers. Raises ValueError unless it is version 1 of the message."""
    fields = _object(payload)
    return Taken(
        checkpoint=_whole(fields, "checkpoint"),
        taken=_numbers(fields.get("taken", {})),
        missing=_numbers(fields.get("missing", {})),
        messages=_whole(fields, "messages", 0),
        at_ms=_whole(fields, "at", 0),
        above=_ranges(fields.get("above", {})),
        mark=_text(fields, "mark"),
        dropped=_whole(fields, "dropped", 0),
    )


def parse_sent(payload: bytes) -> Sent:
    """Parse a sink's numbers. Raises ValueError unless it is version 1 of the message."""
    fields = _object(payload)
    producer = _text(fields, "producer")
    if producer is None:
        raise ValueError("producer is no text")
    return Sent(
        producer=producer,
        epoch=_whole(fields, "epoch"),
        number=_whole(fields, "number"),
        at_ms=_whole(fields, "at", 0),
        unread=_whole(fields, "unread", 0),
        topic=_text(fields, "topic"),
        refused=_whole(fields, "refused", 0),
        left_out=_whole(fields, "left_out", 0),
        lost=_whole(fields, "lost", 0),
        problem=cut_problem(_text(fields, "problem")),
    )


def _object(payload: bytes) -> dict[str, Any]:
    fields = orjson.loads(payload)
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    if fields.get("v") != 1:
        raise ValueError(f"version {fields.get('v')!r}, not 1")
    return fields


_LARGEST = 1 << 53
"""The largest number: sums of some are exact everywhere."""
_MOST_DIGITS = 16


def _count(text: bytes | str) -> int:
    """The number that a text begins with (`1234 seconds`). Raises ValueError if that is none, or
    more than what is added up."""
    word = text.split(maxsplit=1)[0] if text.strip() else text
    if not (word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS):
        raise ValueError("no number")
    if (number := int(word)) > _LARGEST:
        raise ValueError("a number beyond 2^53")
    return number


def _whole(fields: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = fields.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{key} is no whole number")
    return value


def _text(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if not isinstance(value, str | None):
        raise ValueError(f"{key} is no text")
    return value


def _numbers(data: object) -> dict[str, dict[int, int]]:
    if not isinstance(data, dict):
        raise ValueError("numbers by producer are no object")
    numbers: dict[str, dict[int, int]] = {}
    for producer, epochs in data.items():
        if not isinstance(epochs, dict):
            raise ValueError(f"numbers of {producer} are no object")
        numbers[producer] = {_count(epoch): _whole(epochs, epoch) for epoch in epochs}
    return numbers


def _ranges(data: object) -> dict[str, dict[int, Ranges]]:
    if not isinstance(data, dict):
        raise ValueError("ranges by producer are no object")
    ranges: dict[str, dict[int, Ranges]] = {}
    for producer, epochs in data.items():
        if not isinstance(epochs, dict):
            raise ValueError(f"ranges of {producer} are no object")
        ranges[producer] = {_count(epoch): _pairs(producer, epochs[epoch]) for epoch in epochs}
    return ranges


def _pairs(producer: str, data: object) -> Ranges:
    if not isinstance(data, list):
        raise ValueError(f"ranges of {producer} are no list")
    pairs = []
    for each in data:
        match each:
            case [int(first), int(last)] if 0 < first <= last <= _LARGEST and bool not in map(
                type, each
            ):
                pairs.append((first, last))
            case _:
                raise ValueError(f"a range of {producer} is no pair of rising numbers")
    return tuple(pairs)
