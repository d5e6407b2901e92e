"""What a reader says of itself beside its place: a small JSON object."""

from __future__ import annotations

import json
from typing import Any

from speck_link.transport import TakenReport

_MOST_BYTES = 4000
"""Brokers take 4096 by default."""


def write_metadata(report: TakenReport, topic_id: str) -> str:
    """The holes of the producers that were heard last, as many as there is room for."""
    body: dict[str, Any] = {
        "v": 1,
        "id": topic_id,
        "at": report.at_ms,
        "checkpoint": report.checkpoint,
        "messages": report.taken.messages,
    }
    room = _MOST_BYTES - len(_dump(body)) - len(',"missing":{}')
    holes: dict[str, dict[int, int]] = {}
    for producer, epochs in report.taken.list_holes():
        room -= len(_dump({producer: epochs}).encode())
        if room < 0:
            break
        holes[producer] = epochs
    if holes:
        body["missing"] = holes
    return _dump(body)


def _dump(body: dict[str, Any]) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
