"""How many messages wait in a session, and what is stored of it to count them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from speck.model.incarnation import Session
from speck.model.observation import BrokerView

EPOCHS_KEPT = 16
"""Of a producer whose last numbers are stored with a session."""


def count_unread(view: BrokerView, session: Session, sinks: Iterable[str]) -> int:
    """Count the messages that were sent to a session and that its reader does not report as taken.
    An upper bound for a reader that reports nothing: all that was sent since the session was made.

    `sinks` are the client ids of those who write to the link; one that reports no number for it has
    sent nothing. The numbers of sinks that have left the link are stored with the session (`owed`).
    What an earlier reader has taken and handed over (`skip`) does not wait for this one.
    """
    last = view.find_last(session.link.topic, sinks, session.owed)
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
