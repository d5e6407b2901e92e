"""The contract of message brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Position
from speck.model.record import Record


class BrokerCapability(StrEnum):
    """What a broker can do beyond carrying messages."""

    SESSIONS = "sessions"  # keeps the messages of a reader that is not connected
    NUMBERS = "numbers"  # carries a stamp beside each record, so that repeats are recognised
    REPORTS = "reports"  # passes on to sinks whether they have readers, and keeps their numbers
    MARKS = "marks"  # passes a mark through a reader's session, behind all that waits there
    METRICS = "metrics"  # measures itself


@dataclass(frozen=True, slots=True)
class Reservation:
    """A session that `reserve` has found or made: whether it `existed` already and, at a broker
    that keeps logs, the `position` from which its reader goes on. `kept_s`: for how many seconds
    the broker keeps it from now on while its reader is away; None: until it is released."""

    existed: bool
    position: Position = field(default_factory=dict)
    kept_s: float | None = None


class MessageBroker(Protocol):
    """A site's message broker. Every call has a time limit and raises only SpeckErrors.

    A reader and a sink are called by names that speck makes up, and a link by its topic. How the
    broker keeps them is its binder's business.
    """

    capabilities: frozenset[BrokerCapability]

    def reach(self) -> str:
        """Connect once and return what answered, with its version."""

    def identify(self, proposed: str | None = None) -> str | None:
        """Return the identity by which speck knows this broker again at another address: 32 hex
        digits. If it has none, it gets the `proposed` one, which is returned then; None: it has
        none. It is kept with the sessions: a broker that has lost the one has lost the other, too.
        """

    def reserve(
        self,
        reader: str,
        topic: str,
        *,
        fresh: bool = False,
        first: bool = False,
        lost: bool = False,
        at: Position | None = None,
    ) -> Reservation:
        """Create the reader's session on a link, unless it exists. An existing session is kept
        with its messages, unless it is to be `fresh`: a broker that was killed may restore a
        session that had been released.

        The broker keeps the session, with its messages, across a kill if it has saved anything
        since; a session that it has lost is missing in its `view`. With `lost`, or if a session
        did not exist that is neither to be fresh nor the `first` of its reader, the link's sinks
        are asked to send their recent messages again, unless the broker still has them.

        At a broker that keeps logs a session that is made begins `at` the position where its
        reader was last seen: a part of the log that this does not name, since it was added later or
        the log was made anew, is read from its beginning, and what was deleted behind the position
        is missing (`Taken.missing`). Without a position it begins at the end of the log. Other
        brokers ignore it.

        If the broker keeps sessions for a limited time (`Reservation.kept_s`), to reserve one that
        exists begins that time anew: the service does so while the reader is away.

        Never call it for a reader that an incarnation may hold: the broker might disconnect it.
        With the capability REPORTS the link's sinks know from then on that it has readers.
        """

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        """End the reader's session; its messages are lost and the numbers that it has reported are
        cleared. With `last_reader` the link's sinks learn that it has no readers (REPORTS)."""

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Publish records that carry no numbers, in this order, at least once; returns how many of
        them found no reader, as far as the broker reports it: nobody will receive those."""

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        """Hand over each record that is published on a link from now on, beside its readers, who
        notice nothing. Returns soon after `go_on`, which is asked at least twice a second, has
        returned False. Nothing stays at the broker."""

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        """Return what readers have taken and sinks have sent, with what else `BrokerView` holds.

        With `clients` (readers and sinks) only their numbers are needed, the ends of their links,
        the identity and `up_since`; so it should cost what a few clients have reported, not what
        all have."""

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs."""

    def close(self) -> None:
        """Close all connections."""

    # -- called only with the capability REPORTS

    def announce(self, topic: str, *, readers: bool) -> None:
        """Tell the sinks of a link whether it has readers."""

    def confirm_sessions(self, topic: str, readers: Iterable[str]) -> bool:
        """Tell the sinks of a link that it has no other sessions than these, if all of them exist;
        returns whether they do. For a sink that misses a session which was released while it was
        not connected."""

    def forget(self, *sinks: str) -> None:
        """Clear the numbers that sinks have reported which are gone for good; without any it sends
        nothing to the broker."""

    # -- called only with the capability MARKS

    def mark(self, reader: str, mark: str) -> bool:
        """Send a mark (up to 32 hex digits) through a reader's session, behind all messages queued
        in it. The reader reports it (`mark` of its taken numbers) with the checkpoint that covers
        these messages. Returns False if the session takes no marks: it belongs to an outside
        reader, or its reader was never connected."""

    # -- called only with the capability METRICS

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """Return the broker's measurements (None for values that it does not publish, or hides),
        together with the result of `view`."""
