"""Keeps the last numbers of sinks that number anew, for readers outside speck.

A sink begins a new epoch with each start of its writer, also when its engine restarts it, and then
reports only that. A reader outside speck reports nothing, so what it was sent is known by the
numbers of all epochs since its session was made. Those of starts by speck are stored with these
(`speck.deploy.operations.starting`), those of an engine here, once polls show the new epoch. An
epoch that ended while the service was down has left no last number: then none is known any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from speck.deploy.changes import Changes
from speck.model.incarnation import Session
from speck.model.observation import BrokerView, Sent
from speck.model.unread import fold_owed
from speck.store.records import Records

_Add = Callable[[Session, Sent], Session]


class FormerEpochs:
    """Compares what sinks report with their reports before."""

    def __init__(self, records: Records, changes: Changes):
        self._records = records
        self._changes = changes
        self._last: dict[str, Mapping[str, Sent]] = {}
        self._left: dict[tuple[str, str, int], Sent] = {}
        """Last reports that are to be stored, by (site, producer, epoch)."""
        self._begun: dict[tuple[str, str, int], Sent] = {}
        """First ones."""

    def compare(self, views: Mapping[str, BrokerView | None]) -> None:
        """Store the last numbers of the epochs that sinks have left since the views before."""
        for site, view in views.items():
            if view is None:
                continue
            before = self._last.get(site, {})
            self._last[site] = view.sent
            for sink, sent in view.sent.items():
                old = before.get(sink)
                if old is not None and old.topic is not None and old.epoch != sent.epoch:
                    self._left[site, old.producer, old.epoch] = old
                    self._begun.pop((site, old.producer, old.epoch), None)
            for sink, sent in find_newest(view.sent).items():
                old = before.get(sink)
                if old is None or old.epoch != sent.epoch:
                    self._begun[site, sent.producer, sent.epoch] = sent
        for key, sent in list(self._left.items()):
            if self._store(key[0], sent, add_owed):
                del self._left[key]
        for key, sent in list(self._begun.items()):
            if self._store(key[0], sent, begin_epoch):
                del self._begun[key]

    def _store(self, site: str, sent: Sent, add: _Add) -> bool:
        """Whether it has been stored with all sessions concerned: not while a change may write
        them, too."""
        is_stored = True
        for scope, session in self._records.sessions.at_broker_of(site):
            is_outside = session.job_name is None and session.reserved
            if is_outside and session.link.topic == sent.topic:
                with self._changes.resting(scope) as is_resting:
                    is_stored &= is_resting
                    if is_resting:
                        self._add(scope, session.client_id, site, sent, add)
        return is_stored

    def _add(self, scope: str, client_id: str, site: str, sent: Sent, add: _Add) -> None:
        with self._changes.session_locks.writing[client_id]:
            session = self._records.sessions.get(scope, client_id, site)
            if session is None or not session.reserved:
                return
            after = fold_owed(add(session, sent), self._list_reported(site))
            if after != session:
                self._records.write(self._records.sessions.put(scope, after))

    def _list_reported(self, site: str) -> set[tuple[str, int]]:
        """The epochs of sinks whose numbers may be added once more."""
        reported = {(sent.producer, sent.epoch) for sent in self._last.get(site, {}).values()}
        return reported | {(producer, epoch) for at, producer, epoch in self._left if at == site}


def add_owed(session: Session, sent: Sent) -> Session:
    """The session with one more last number, unless it was made after it."""
    key = (sent.producer, sent.epoch)
    running = tuple(each for each in session.running if each != key)
    session = replace(session, running=running) if running != session.running else session
    owed = {(producer, epoch): number for producer, epoch, number in session.owed}
    before = {(producer, epoch): number for producer, epoch, number in session.since}
    if sent.number <= before.get(key, 0):
        return session
    owed[key] = max(sent.number, owed.get(key, 0))
    return replace(session, owed=tuple((*each, n) for each, n in sorted(owed.items())))


def find_newest(sent: Mapping[str, Sent]) -> dict[str, Sent]:
    """The sinks that number now: a producer's former sink may still report its last number."""
    newest = dict[tuple[str, str], str]()
    for sink, each in sent.items():
        if each.topic is not None:
            key = (each.producer, each.topic)
            if key not in newest or sent[newest[key]].epoch < each.epoch:
                newest[key] = sink
    return {sink: sent[sink] for sink in newest.values()}


def begin_epoch(session: Session, sent: Sent) -> Session:
    """The session once its sink numbers in a new epoch. If another one is still listed as running,
    nobody has seen its end."""
    key = (sent.producer, sent.epoch)
    if key in session.running:
        return session
    others = tuple(each for each in session.running if each[0] != sent.producer)
    is_missed = len(others) < len(session.running)
    uncounted = session.fed_outside or is_missed
    return replace(session, running=(*others, key), fed_outside=uncounted)
