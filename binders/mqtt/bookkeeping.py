"""The retained topics by which jobs and the control plane tell each other how far they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from speck.observed import Sent, Taken

TAKEN = "speck/taken/"
SENT = "speck/sent/"
READERS = "speck/readers/"
MARKER = "speck/marker/"
PROBE = "speck/probe/"


def parse_taken(payload: bytes) -> Taken:
    """A reader's numbers. Raises ValueError for anything but version 1 of the message."""
    said = _object(payload)
    return Taken(
        checkpoint=_whole(said, "checkpoint"),
        taken=_numbers(said.get("taken", {})),
        missing=_numbers(said.get("missing", {})),
        messages=_whole(said, "messages", 0),
        at_ms=_whole(said, "at", 0),
    )


def parse_sent(payload: bytes) -> Sent:
    """A sink's numbers. Raises ValueError for anything but version 1 of the message."""
    said = _object(payload)
    producer = said.get("producer")
    if not isinstance(producer, str):
        raise ValueError("producer is no text")
    return Sent(
        producer=producer,
        epoch=_whole(said, "epoch"),
        number=_whole(said, "number"),
        at_ms=_whole(said, "at", 0),
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


def _numbers(said: object) -> dict[str, dict[int, int]]:
    if not isinstance(said, dict):
        raise ValueError("numbers by producer are no object")
    numbers: dict[str, dict[int, int]] = {}
    for producer, epochs in said.items():
        if not isinstance(epochs, dict):
            raise ValueError(f"numbers of {producer} are no object")
        numbers[producer] = {int(epoch): _whole(epochs, epoch) for epoch in epochs}
    return numbers
