"""Between sources, sinks and brokers: what readers and writers of links do, at any broker.

All of it is called by one thread, the job's: `tend` many times a second, `read` and `write` when
`fileno` is ready. What has happened to a reader or a writer, its listener hears within these calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from speck_link.arguments import Contract, Link
from speck_link.link_status import LinkStatus
from speck_link.sent import SentNumber
from speck_link.taken import TakenNumbers


class Place(NamedTuple):
    """Where a reader is in a part of a log: the offset of the next record, and in which term of its
    leader the last record before it was written, if that is known. A log that was cut, and has
    grown since, is told by it from one that has that record still."""

    offset: int
    term: int | None = None


Position = Mapping[str, Place]
"""Places in a log by series (a part of the log). Empty: the broker keeps no logs, or nothing is
known yet."""


def read_position(offsets: str | None, terms: str | None) -> Position:
    """The position of a state. A version that knew no terms may have moved the offsets since the
    `terms` were stored; they have the offsets that they belong to."""
    of_terms = json.loads(terms or "{}")
    places = {}
    for series, offset in json.loads(offsets or "{}").items():
        place = Place(*of_terms.get(series, (offset,)))
        places[series] = place if place.offset == offset else Place(offset)
    return places


class Incoming(NamedTuple):
    """A message that waits to be taken."""

    payload: bytes
    stamp: str | None
    content_type: str | None
    is_mark: bool
    place: tuple[int, ...]
    """Which it is, in its reader's own words."""


class Outcome(Enum):
    """What has become of a message that was sent."""

    TAKEN = "taken"
    UNREAD = "unread"
    """Nobody has subscribed to it."""
    REFUSED = "refused"
    TOO_LARGE = "too large"


@dataclass(frozen=True)
class TakenReport:
    """What a complete checkpoint covers."""

    at_ms: int
    checkpoint: int
    taken: TakenNumbers
    position: Position
    mark: str | None


class End(Protocol):
    """One end of a link, kept connected."""

    @property
    def ready(self) -> bool: ...
    @property
    def problem(self) -> str | None:
        """Why nothing gets through, in words; None: nothing is wrong."""

    @property
    def is_full(self) -> bool:
        """Whether more is here than should be: nothing is to be read then."""

    def fileno(self) -> int:
        """The number of a file; -1 while there is none."""

    def wants_write(self) -> bool: ...
    def read(self) -> None: ...
    def write(self) -> None: ...
    def tend(self, now: float) -> None: ...
    def disconnect(self) -> None:
        """Say good-bye; what was sent before gets there before."""


class Reader(End, Protocol):
    """Reads a link, from a session or a log."""

    @property
    def dropped(self) -> int:
        """Messages that found no room, under at_most_once."""

    @property
    def sessions_lost(self) -> int: ...
    @property
    def has_waiting(self) -> bool: ...
    def poll(self) -> Incoming:
        """The next of the messages that wait."""

    def keep(self, message: Incoming) -> None:
        """The message that was polled last is taken: the next checkpoint covers it."""

    def position(self) -> Position:
        """Where it is in its log, behind all that was kept."""

    def acknowledge(self) -> None:
        """A checkpoint is complete that covers all that was kept."""

    def report(self, report: TakenReport) -> bool:
        """Announce it at the broker; whether it is on its way."""

    @property
    def has_reported(self) -> bool:
        """Whether the last announcement has arrived, or none is under way."""


class ReaderListener(Protocol):
    """The source of a reader."""

    def start_over(self) -> None:
        """The connection was lost: what is not acknowledged comes again over the next one."""


class Writer(End, Protocol):
    """Writes a link."""

    @property
    def most_in_flight(self) -> int: ...
    @property
    def max_payload(self) -> int:
        """Bytes that the broker takes, as far as it has said."""

    @property
    def takes_batches(self) -> bool:
        """Whether it takes several records as one message."""

    @property
    def size_setting(self) -> str:
        """What to change at a broker that takes no larger records, for people."""

    @property
    def bytes_sent(self) -> int: ...
    def send(self, payload: bytes, stamp: str, content_type: str | None) -> int | None:
        """Send a message, whose outcome the listener hears later with this key; None: there will
        be none."""

    def report(self, payload: bytes) -> bool:
        """Announce up to where the broker has everything; whether that is on its way."""

    @property
    def is_reporting(self) -> bool:
        """Whether an announcement is under way."""

    @property
    def keeps_log(self) -> bool:
        """Whether what was sent lies in the log for all to see, so that nothing is announced."""


class WriterListener(Protocol):
    """The sink of a writer."""

    status: LinkStatus
    """What the broker says of the link."""

    @property
    def oldest_doubtful(self) -> SentNumber | None:
        """The oldest record of which it matters now whether the broker has it; None: there is none.
        Finding that out takes a while at a broker that keeps no report of it. What does not turn
        out in time is sent again, and readers drop the repeats."""

    def admit(self) -> None:
        """There is another connection, which is not ready yet."""

    def begin(self) -> None:
        """The writer is ready."""

    def hear(self, topic: str, payload: bytes) -> None:
        """The broker has said something of the link."""

    def settle(self, key: int, outcome: Outcome, problem: str | None = None) -> None: ...
    def start_over(self, *, is_guilty: bool) -> None:
        """The connection was lost; `is_guilty`: because of something that was sent."""


class ReaderOpener(Protocol):
    """Makes the reader of a job's source; `position` is where its state ends, if `read_before`."""

    def __call__(
        self,
        contract: Contract,
        listener: ReaderListener,
        position: Position,
        *,
        read_before: bool,
    ) -> Reader: ...


class WriterOpener(Protocol):
    """Makes the writer of a link."""

    def __call__(self, contract: Contract, link: Link, listener: WriterListener) -> Writer: ...
