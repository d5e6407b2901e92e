"""The retained topics by which jobs and the control plane tell each other how far they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Ranges, Sent, Taken

TAKEN = "speck/taken/"
SENT = "speck/sent/"
READERS = "speck/readers/"
MARKS = "speck/marks/"
AGAIN = b"again"
MARKER = "speck/marker/"
PROBE = "speck/probe/"
NUMBERS = (TAKEN, SENT, READERS)
UPTIME = "$SYS/broker/uptime"
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
"""How old what $SYS tells may be: `sys_interval` is 10 s by default."""

STORED = f"{_BROKER}store/messages/count"
RETAINED = f"{_BROKER}retained messages/count"


class Totals:
    """What a broker's $SYS topics tell, while they come in.

    Mosquitto tells what has changed, and lets it expire after a minute: what it does not tell is
    as it was told `before`, unless the broker began anew: it runs for too short a time then.
    """

    topics = (*TOTALS, STORED, RETAINED)

    def __init__(self, before: Mapping[str, int], elapsed_s: float = 0.0) -> None:
        """`before` was told `elapsed_s` seconds ago."""
        self._before = before
        self._elapsed_s = elapsed_s
        self._told: dict[str, int] = {}

    def note(self, topic: str, payload: bytes) -> None:
        """One message. Raises ValueError when it is no number."""
        self._told[topic] = int(payload.split()[0])

    def known(self) -> dict[str, int]:
        """By topic, what is known now."""
        uptime_s = self._told.get(UPTIME)
        went_on = self._before.get(UPTIME, 0) + max(0.0, self._elapsed_s - _SYS_S)
        if uptime_s is None or uptime_s < went_on:
            return dict(self._told)
        return {**self._before, **self._told}

    def measures(self) -> BrokerMeasures:
        """What waits for readers is stored, as is what is retained."""
        known = self.known()
        stored, retained = known.get(STORED), known.get(RETAINED)
        waiting = None if stored is None or retained is None else max(0, stored - retained)
        totals = {name: known.get(topic) for topic, name in TOTALS.items()}
        return BrokerMeasures(queued=waiting, **totals)


class Retained:
    """What is read of a broker's retained topics while they come in."""

    def __init__(self) -> None:
        self._taken: dict[str, Taken] = {}
        self._sent: dict[str, Sent] = {}
        self._readers: dict[str, bool] = {}
        self._uptime_s: int | None = None
        self._dropped: int | None = None

    def note(self, topic: str, payload: bytes) -> None:
        """One message; an empty one clears. Raises ValueError when it cannot be read."""
        if topic.startswith(TAKEN):
            _put(self._taken, topic.removeprefix(TAKEN), parse_taken(payload) if payload else None)
        elif topic.startswith(SENT):
            _put(self._sent, topic.removeprefix(SENT), parse_sent(payload) if payload else None)
        elif topic.startswith(READERS) and payload != AGAIN:
            _put(
                self._readers, topic.removeprefix(READERS), payload == b"some" if payload else None
            )
        elif topic == UPTIME:
            self._uptime_s = int(payload.split()[0])
        elif topic == DROPPED:
            self._dropped = int(payload)

    def view(self) -> BrokerView:
        return BrokerView(self._taken, self._sent, self._uptime_s, self._dropped, self._readers)


T = TypeVar("T")


def _put(found: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        found.pop(key, None)
    else:
        found[key] = value


def parse_taken(payload: bytes) -> Taken:
    """A reader's numbers. Raises ValueError for anything but version 1 of the message."""
    said = _object(payload)
    return Taken(
        checkpoint=_whole(said, "checkpoint"),
        taken=_numbers(said.get("taken", {})),
        missing=_numbers(said.get("missing", {})),
        messages=_whole(said, "messages", 0),
        at_ms=_whole(said, "at", 0),
        above=_ranges(said.get("above", {})),
        mark=_text(said, "mark"),
    )


def parse_sent(payload: bytes) -> Sent:
    """A sink's numbers. Raises ValueError for anything but version 1 of the message."""
    said = _object(payload)
    producer = _text(said, "producer")
    if producer is None:
        raise ValueError("producer is no text")
    return Sent(
        producer=producer,
        epoch=_whole(said, "epoch"),
        number=_whole(said, "number"),
        at_ms=_whole(said, "at", 0),
        unread=_whole(said, "unread", 0),
        topic=_text(said, "topic"),
    )


def _object(payload: bytes) -> dict[str, Any]:
    try:
        said = json.loads(payload)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(said, dict):
        raise ValueError("no JSON object")
    if said.get("v") != 1:
        raise ValueError(f"version {said.get('v')!r}, not 1")
    return said


def _whole(said: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = said.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{key} is no whole number")
    return value


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    if not isinstance(value, str | None):
        raise ValueError(f"{key} is no text")
    return value


def _numbers(said: object) -> dict[str, dict[int, int]]:
    if not isinstance(said, dict):
        raise ValueError("numbers by producer are no object")
    numbers: dict[str, dict[int, int]] = {}
    for producer, epochs in said.items():
        if not isinstance(epochs, dict):
            raise ValueError(f"numbers of {producer} are no object")
        numbers[producer] = {int(epoch): _whole(epochs, epoch) for epoch in epochs}
    return numbers


def _ranges(said: object) -> dict[str, dict[int, Ranges]]:
    if not isinstance(said, dict):
        raise ValueError("ranges by producer are no object")
    ranges: dict[str, dict[int, Ranges]] = {}
    for producer, epochs in said.items():
        if not isinstance(epochs, dict):
            raise ValueError(f"ranges of {producer} are no object")
        ranges[producer] = {int(epoch): _pairs(producer, epochs[epoch]) for epoch in epochs}
    return ranges


def _pairs(producer: str, said: object) -> Ranges:
    if not isinstance(said, list):
        raise ValueError(f"ranges of {producer} are no list")
    pairs = []
    for each in said:
        match each:
            case [int(first), int(last)] if 0 < first <= last and bool not in map(type, each):
                pairs.append((first, last))
            case _:
                raise ValueError(f"a range of {producer} is no pair of rising numbers")
    return tuple(pairs)
