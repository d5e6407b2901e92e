"""What the retained topics of a sink's broker say of its link: readers, their sessions, and which
number the broker has."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from speck_link.arguments import Link
from speck_link.messages import Message
from speck_link.sent import SentNumber, SentRecords

_READERS, _SENT, _SESSIONS = "speck/readers/", "speck/sent/", "speck/sessions/"


class LinkStatus:
    """Of one link; `receive` and `start_over` are called by its sink."""

    def __init__(self, link: Link, producer: str, has_readers: bool | None) -> None:
        self._link, self._producer = link, producer
        self.has_readers = has_readers
        """Whether records that nobody has subscribed to are held; None: not known."""
        self.confirmed: SentRecords | None = None
        """What the broker of this connection has by its own word."""
        self.wants_again = False
        """A reader has lost its session: the window is to be sent again."""
        self._expected: set[str] = set()
        self._present: set[str] = set()
        self.topics = (
            f"{_READERS}{link.topic}",
            f"{_SENT}{link.client_id}",
            f"{_SESSIONS}{link.topic}/+",
        )

    @property
    def reaches_all(self) -> bool:
        """Whether the broker has the sessions of all readers; where one is missing that was
        announced, what is published would not get into it."""
        return self._expected <= self._present

    def start_over(self) -> None:
        self.confirmed = None
        self._present = set()

    def receive(self, topic: str, payload: bytes) -> None:
        if topic.startswith(_SESSIONS):
            client_id = topic.rpartition("/")[2]
            for known in (self._expected, self._present):
                (known.add if payload else known.discard)(client_id)
        elif topic.startswith(_READERS):
            self._receive_readers(payload)
        else:
            self.confirmed = _parse_sent(payload, self._link.topic) or self.confirmed

    def _receive_readers(self, payload: bytes) -> None:
        match payload:
            case b"some" | b"none":
                self.has_readers = payload == b"some"
            case b"again":
                self.wants_again = True
            case b"complete":
                self._expected &= self._present
            case b"":
                return
            case _:
                print(f"cannot read the announcement {payload[:40]!r}", file=sys.stderr)

    def covers(self, message: Message) -> bool:
        """Whether the broker says that it has a message."""
        sent = self.confirmed
        return sent is not None and sent.covers(
            self._producer, message.epoch, message.number, message.last
        )

    def reaches(self, message: Message) -> bool:
        """Whether the broker says that it has a message, or a later one of its epoch."""
        sent = self.confirmed
        return sent is not None and sent.reaches(self._producer, message.epoch, message.last)

    def may_lack(self, message: Message) -> bool:
        """Whether what the broker says leaves open that it has refused a message, and taken what
        came after it."""
        sent = self.confirmed
        return sent is not None and sent.may_have_gaps and not self.covers(message)

    def render(self, epoch: int, number: int, **report: Any) -> bytes:
        """The retained message on `speck/sent/<client id>`; never less than is known already."""
        sent = self.confirmed
        if isinstance(sent, SentNumber) and sent.producer == self._producer:
            is_older = sent.epoch == epoch and sent.number >= number
            if not number or is_older:
                epoch, number = sent.epoch, sent.number
        body = {
            "v": 1,
            "at": int(time.time() * 1000),
            "unread": report.pop("unread", 0),
            **{name: value for name, value in report.items() if value},
            "topic": self._link.topic,
            "producer": self._producer,
            "epoch": epoch,
            "number": number,
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _parse_sent(payload: bytes, topic: str) -> SentNumber | None:
    try:
        body = json.loads(payload)
        if body.get("topic", topic) != topic:
            return None
        return SentNumber(str(body["producer"]), int(body["epoch"]), int(body["number"]))
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
