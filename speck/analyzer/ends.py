"""The ends of links: what the numbers that producers and readers publish add up to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from speck.analyzer.contracts import Contract
from speck.analyzer.unknowns import divide
from speck.model.values import JsonObject

ENDED_S = 30.0

END = ("broker_site", "topic", "role", "client_id")
"""What identifies an end of a link."""

_END = {
    "composition": "string",
    "broker_site": "string",
    "topic": "string",
    "role": "string",
    "client_id": "string",
    "job_name": "string",
    "engine_site": "string",
}

ENDS = Contract(
    "ends of links",
    _END
    | {
        "good_sent": "bigint",  # messages between polls that count
        "good_s": "double",  # and the time between them
        "lag": "bigint",  # the newest
        "lag_per_s": "double",  # its growth: slope of a line through all polls
        "lag_fit": "double",  # 0 to 1: how well a line fits (r squared)
        "last_at": "timestamp",
    },
)


End = tuple[str | None, str | None, str, str | None, str | None]
"""What identifies a job's end of a link: composition, job, role, site of the broker, topic."""


class Numbers(NamedTuple):
    """Messages per second by the numbers that an end published, and seconds that these cover."""

    records_per_s: float
    seconds: float


def list_present(summed: Iterable[JsonObject]) -> list[JsonObject]:
    """Rows of ENDS that still exist, with their `records_per_s`. Each poll of a broker reports all
    its ends, so one that is missing exists no longer."""
    rows = list(summed)
    newest: dict[str | None, datetime] = {}
    for row in rows:
        at, broker = row["last_at"], row["broker_site"]
        newest[broker] = max(at, newest.get(broker, at))
    return [
        {**row, "records_per_s": divide(row["good_sent"], row["good_s"])}
        for row in rows
        if (newest[row["broker_site"]] - row["last_at"]).total_seconds() <= ENDED_S
    ]


def find_lags(ends: Iterable[JsonObject]) -> dict[tuple[str | None, str], int | None]:
    """Ends -> the lag of each reading job, by composition and name."""
    lags = {}
    for end in sorted(ends, key=lambda end: end["last_at"]):
        if end["role"] == "reader" and end["job_name"] is not None:
            lags[end["composition"], end["job_name"]] = end["lag"]
    return lags


def find_numbers(ends: Iterable[JsonObject]) -> dict[End, Numbers]:
    """Ends of `list_present` -> the newest numbers of each end of a job."""
    numbers: dict[End, Numbers] = {}
    for end in sorted(ends, key=lambda end: (end["last_at"], end["good_s"] or 0.0)):
        if end["job_name"] is not None and end["records_per_s"] is not None:
            place = (end["role"], end["broker_site"], end["topic"])
            numbers[end["composition"], end["job_name"], *place] = Numbers(
                end["records_per_s"], end["good_s"]
            )
    return numbers
