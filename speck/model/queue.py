"""A queue that a plan drops: messages in a reader's session that nobody will take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from speck.model.observation import BrokerView
from speck.model.values import cut

EPOCHS_KEPT = 16
"""Of a producer whose last numbers are stored with a session."""

if TYPE_CHECKING:
    from speck.model.incarnation import Session


class Count(StrEnum):
    """What is known about the number of messages in a queue."""

    ABOUT = "about"  # sent to it, less what its reader reports as taken
    AT_MOST = "at_most"  # sent to it; its reader does not report what it has taken
    UNKNOWN = "unknown"  # publishers outside speck write to the link, and report nothing


@dataclass(frozen=True, slots=True)
class DroppedQueue:
    """The queue of a session that a plan releases.

    `job_name` is None for a reader outside speck. `messages` is None if nothing is known of the
    number. `why` says why nobody takes the messages first.
    """

    client_id: str
    job_name: str | None
    site: str
    topic: str
    messages: int | None
    count: Count
    why: str

    @property
    def reader(self) -> str:
        return self.job_name or self.client_id

    @property
    def size(self) -> str:
        """The number of messages in words."""
        if self.messages is None:
            return "number not known"
        unit = "message" if self.messages == 1 else "messages"
        if self.count is Count.ABOUT:
            return f"about {self.messages} {unit}"
        return f"at most {self.messages} {unit}, sent since the session was made"

    @property
    def outcome(self) -> str:
        """The text once it has been dropped."""
        return f"dropped {self._subject}"

    def __str__(self) -> str:
        return f"drops {self._subject}"

    @property
    def _subject(self) -> str:
        return (
            f"the queue of {self.reader} at {self.site}/{cut(self.topic)} ({self.size}): {self.why}"
        )


def count_unread(view: BrokerView, session: Session, sinks: Iterable[str]) -> int:
    """Count the messages that were sent to a session and that its reader does not report as taken.
    An upper bound for a reader that reports nothing: all that was sent since the session was made.

    `sinks` are the client ids of those who write to the link; one that reports no number for it has
    sent nothing. The numbers of sinks that have left the link are stored with the session (`owed`).
    What an earlier reader has taken and handed over (`skip`) does not wait for this one.
    """
    last = {(producer, epoch): number for producer, epoch, number in session.owed}
    for sink in sinks:
        sent = view.find_sent(session.link.topic, sink)
        if sent is not None:
            key = (sent.producer, sent.epoch)
            last[key] = max(sent.number, last.get(key, 0))
    before = {(producer, epoch): number for producer, epoch, number in session.since}
    for each in session.skip:
        key = (each.producer, each.epoch)
        before[key] = max(each.upto, before.get(key, 0))
        if last.get(key, 0) <= each.upto:
            last.pop(key, None)
    if session.client_id in view.taken:
        return view.untaken(session.client_id, last)
    return sum(max(0, number - before.get(key, 0)) for key, number in last.items())


def fold_owed(session: Session, reported: Collection[tuple[str, int]]) -> Session:
    """The session of a reader outside speck with few last numbers: of each producer, the earliest
    epochs are counted together, as if all had been sent in the first of them.

    An engine that restarts a job again and again begins an epoch each time, and such a reader
    reports nothing by which they could be dropped. Epochs that are still `reported` stay apart:
    their numbers come again.
    """
    if session.job_name is not None or len(session.owed) <= EPOCHS_KEPT:
        return session
    before = {(producer, epoch): number for producer, epoch, number in session.since}
    by_producer: dict[str, list[tuple[int, int]]] = {}
    for producer, epoch, number in sorted(session.owed):
        if (producer, epoch) not in reported:
            by_producer.setdefault(producer, []).append((epoch, number))
    owed = {(producer, epoch): number for producer, epoch, number in session.owed}
    for producer, epochs in by_producer.items():
        (first, total), *others = epochs[: -EPOCHS_KEPT + 1] or epochs[:1]
        for epoch, number in others:
            total += max(0, number - before.get((producer, epoch), 0))
            del owed[producer, epoch]
        owed[producer, first] = total
    return replace(session, owed=tuple((*key, number) for key, number in sorted(owed.items())))
