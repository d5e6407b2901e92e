"""Messages of a sink: their stamps, and what makes one of several records."""

from __future__ import annotations

import random

from speck_link.batches import MAX_BATCH, encode_length, pack
from speck_link.state import Row

OVERHEAD = 100
"""About what a message takes in memory besides its payload."""
_SPREAD_BITS = 22
_FIRST_SPREAD, _NEXT_SPREAD = 1 << 21, 1 << 10


NOT_STORED, UNSENT, SENT = range(3)


class Message:
    """`place` is that of its first record in the order of all records of a sink, also after a
    restart, `origin` that under which the state may have it: of one of a batch that was split, the
    batch's. `kept`: it is in the resend window; `resent`: it is sent again from there; `stored`:
    how the state has it."""

    __slots__ = (
        *("acked_at", "count", "epoch", "format", "kept", "number", "origin", "payload", "place"),
        *("resent", "stored"),
    )

    def __init__(
        self, place: int, epoch: int, number: int, count: int, kind: str | None, payload: bytes
    ) -> None:
        self.place, self.epoch, self.number, self.count = place, epoch, number, count
        self.format, self.payload, self.origin = kind, payload, place
        self.acked_at = 0.0
        self.kept = self.resent = False
        self.stored = NOT_STORED

    @property
    def last(self) -> int:
        return self.number + self.count - 1

    @property
    def size(self) -> int:
        return len(self.payload) + OVERHEAD

    def to_row(self, link: str, stored: int) -> Row:
        """What the state is to have of it from now on."""
        self.stored = stored
        stamp = self.epoch, self.number, self.count
        return (self.place, link, *stamp, self.format, self.payload, stored)

    @classmethod
    def from_row(cls, row: Row) -> Message:
        message = cls(row[0], *row[2:7])
        message.stored = row[7]
        return message

    def stamp(self, producer: str) -> str:
        text = f"{producer}/{self.epoch}/{self.number}"
        return text if self.format is None else f"{text}+{self.count}"

    def split(self, records: list[bytes]) -> list[Message]:
        """One message for each record."""
        parts = [
            Message(self.place + at, self.epoch, self.number + at, 1, None, record)
            for at, record in enumerate(records)
        ]
        for part in parts:
            part.origin = self.origin
        return parts


class Builder:
    """Collects the records of one message."""

    def __init__(self, most: int, *, zstd: bool) -> None:
        self._most = most
        self._zstd = zstd
        self._records: list[bytes] = []
        self._bytes = 0
        self.began = 0.0

    def __len__(self) -> int:
        return len(self._records)

    def has_room(self, record: bytes, most_bytes: int) -> bool:
        if not self._records:
            return True
        return self._bytes + len(encode_length(len(record))) + len(record) <= most_bytes

    def add(self, record: bytes, now: float) -> None:
        if not self._records:
            self.began = now
        self._records.append(record)
        self._bytes += len(record) + len(encode_length(len(record)))

    @property
    def is_full(self) -> bool:
        return len(self._records) >= self._most

    def build(self) -> tuple[str | None, bytes, int]:
        """Format, payload and number of records of all that was added since the last call."""
        records, self._records, self._bytes = self._records, [], 0
        kind, payload = pack(records, in_batches=self._most > 1, zstd=self._zstd)
        return kind, payload, len(records)


def most_batch_bytes(max_record_bytes: int, max_payload: int) -> int:
    return min(MAX_BATCH, max_record_bytes, max_payload)


def choose_epoch(attempt: int, restored: int) -> int:
    """The epoch of a new writer: above the restored one, and unlike those of starts whose state was
    never saved."""
    epoch = (attempt << _SPREAD_BITS) + random.SystemRandom().randrange(_FIRST_SPREAD)
    if restored >= epoch:
        epoch = restored + 1 + random.SystemRandom().randrange(_NEXT_SPREAD)
    return epoch
