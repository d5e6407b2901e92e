"""Restores the sessions that brokers have lost, and renews those whose readers are away.

A session is announced at its broker behind it, and saved with it: a session that is not announced
is lost, whether or not other readers of its link have theirs. The link's sinks wait for it then.
Connecting under a client id that is in use disconnects its holder, so the reader itself is given
the time to come back where it may run.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from speck.binding import Reservation
from speck.deploy.capabilities import passes_reports
from speck.deploy.changes import Changes
from speck.deploy.locks import SessionLocks
from speck.deploy.scheduler import THREADS, Scheduler
from speck.model.change import ChangeState
from speck.model.composition import visible_name
from speck.model.engines import EngineAt
from speck.model.incarnation import Session
from speck.model.observation import BrokerView
from speck.model.values import cut
from speck.monitor.attempts import Attempts, Task, TaskName
from speck.monitor.released_sessions import ReleasedSessions
from speck.monitor.seen_positions import SeenPositions
from speck.monitor.session_renewals import SessionRenewals, may_run
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll
from speck.store.records import Records

LOG = logging.getLogger(__name__)

BACK_S = 30.0
"""A job that may run makes its session again as it connects: after so long it is not connected."""

_CONFIRM_AGAIN_S = 30.0
_Key = tuple[str, str, str]
"""(site, scope, client id) of a session."""


class LostSession(NamedTuple):
    """Whose session was lost: that of a job, or that of an outside reader with this client id."""

    site: str
    topic: str
    reader: str
    is_job: bool


@dataclass(frozen=True, slots=True)
class _Repair:
    """What is to be done at the broker of a site: `missing` are lost sessions, `unannounced` topics
    that have readers, `waited_for` topics whose sinks wait for a session, `returned` (client id,
    topic) of released sessions that are there again, `pending` sessions (with their scopes) that
    were to be ended while their broker did not answer, `due` sessions to renew."""

    site: str
    missing: tuple[_Key, ...]
    unannounced: tuple[str, ...]
    waited_for: tuple[str, ...]
    returned: tuple[tuple[str, str], ...]
    pending: tuple[tuple[str, Session], ...]
    due: tuple[_Key, ...]

    @property
    def has_work(self) -> bool:
        needed = (self.missing, self.unannounced, self.waited_for, self.returned, self.pending)
        return any(needed) or bool(self.due)


class LostSessions:
    """Notices lost sessions, restores them in threads of its own, and counts them."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        changes: Changes,
        scheduler: Scheduler = THREADS,
    ):
        self._records = records
        self._connections = connections
        self._changes = changes
        self._locks = changes.session_locks
        self._pool = scheduler.pool(4, "sessions")
        self._under_way: dict[str, Future[None]] = {}
        self._reserved: tuple[tuple[int, int], dict[_Key, Session]] = ((-1, -1), {})
        self._stored: frozenset[tuple[str, str]] = frozenset()
        self._pending: dict[str, list[tuple[str, Session]]] = {}
        """Sessions (with their scopes) that are to be ended once their broker answers, by site."""
        self._known_since: dict[_Key, float] | None = None
        self._missing_since: dict[_Key, float] = {}
        self._restored: dict[_Key, float] = {}
        """When the repair began that has reserved a session which no poll has shown again yet.
        Threads of the pool add to it: it is never replaced."""
        self._restarted_at: dict[str, float] = {}
        self._released = ReleasedSessions()
        self._positions = SeenPositions(records)
        self._renewals = SessionRenewals(records)
        self._attempts = Attempts()
        self._confirmed_at: dict[tuple[str, str], float] = {}
        self.counts: Counter[LostSession] = Counter()
        """Since the start. Publishers that do not send again may have lost messages with each."""

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is being restored."""
        return all(future.done() for future in self._under_way.values())

    def count_by_job(self) -> Mapping[str, int]:
        """Lost sessions since the start, by the name of their job."""
        counts: Counter[str] = Counter()
        for session, count in list(self.counts.items()):
            counts[session.reader] += count if session.is_job else 0
        return counts

    def restore(
        self,
        now: float,
        polls: Mapping[str, Poll[BrokerView]],
        restarted: Collection[str],
        silent: Collection[EngineAt] = (),
    ) -> None:
        """Begin to restore what new polls of brokers show to be lost, and to renew what is due.
        What cannot be done now shows again in later polls. Brokers of the sites `restarted` may
        have been restarted since the poll before; the engines that are `silent` do not answer."""
        reserved = self._find_reserved(now)
        self._renewals.record_silent(now, silent)
        self._renewals.keep_only(reserved)
        self._positions.store(now, polls, reserved)
        self._restarted_at |= dict.fromkeys(restarted, now)
        for key in {*self._restored} - reserved.keys():
            self._restored.pop(key, None)
        self._missing_since = {
            key: at
            for key, at in self._missing_since.items()
            if key in reserved and key[0] not in restarted
        }
        by_site: dict[str, list[_Key]] = {}
        for key in reserved:
            by_site.setdefault(key[0], []).append(key)
        for site, poll in sorted(polls.items()):
            under_way = self._under_way.get(site)
            if poll.answer is None or not (under_way is None or under_way.done()):
                continue
            own = {key: reserved[key] for key in by_site.get(site, ())}
            repair = self._compare(now, site, poll, own, restarted=site in restarted)
            if repair.has_work:
                self._under_way[site] = self._pool.submit(self._repair, repair, now)

    def _find_reserved(self, now: float) -> dict[_Key, Session]:
        """The sessions that exist as far as the store knows, and since when they are known. Those
        of the first call existed before."""
        writes = self._records.incarnations.writes, self._records.sessions.writes
        if self._reserved[0] != writes:
            sessions = {
                (session.site, scope, session.client_id): session
                for scope, session in self._records.sessions.all()
                if session.reserved
            }
            self._reserved = writes, sessions
            everything = self._records.sessions.all()
            self._stored = frozenset((s.site, s.client_id) for _, s in everything)
            self._pending = {}
            for scope, session in everything:
                if session.released:
                    self._pending.setdefault(session.site, []).append((scope, session))
        self._released.update(now, self._stored)
        reserved = self._reserved[1]
        known = self._known_since
        first = float("-inf") if known is None else now
        self._known_since = {key: (known or {}).get(key, first) for key in reserved}
        return reserved

    def _compare(
        self,
        now: float,
        site: str,
        poll: Poll[BrokerView],
        reserved: Mapping[_Key, Session],
        *,
        restarted: bool,
    ) -> _Repair:
        view = poll.answer
        assert view is not None
        since = self._known_since or {}
        reports = passes_reports(self._connections, site)
        missing, there, unannounced = [], {}, set()
        for key, session in reserved.items():
            if (session.client_id, session.link.topic) in view.sessions:
                self._missing_since.pop(key, None)
                self._restored.pop(key, None)
                there[key] = session
                if reports and not view.readers.get(session.link.topic, False):
                    unannounced.add(session.link.topic)
            elif poll.begun > since[key] and not self._is_restored(key):
                self._missing_since.setdefault(key, now)
                missing.append(key)
        waited_for = tuple(self._find_waited_for(now, site, view)) if reports else ()
        returned = self._released.find_returned(
            site, poll.begun, view.sessions, restarted=restarted
        )
        return _Repair(
            site,
            tuple(sorted(missing)),
            tuple(sorted(unannounced)),
            waited_for,
            tuple(returned),
            tuple(self._pending.get(site, ())),
            self._renewals.find_due(now, there),
        )

    def _is_restored(self, key: _Key) -> bool:
        """Whether a session was reserved in this life of its broker. A restart may be noticed while
        a repair is under way, which then has reserved it in the former one."""
        began = self._restored.get(key)
        return began is not None and began >= self._restarted_at.get(key[0], float("-inf"))

    def _find_waited_for(self, now: float, site: str, view: BrokerView) -> Iterable[str]:
        """Topics whose sinks hold messages back. They may miss a session that was released, of
        which they have not heard."""
        own = f"speck-{self._records.installation[:8]}-"
        for client_id, sent in view.sent.items():
            if not (sent.unread and sent.topic and client_id.startswith(own)):
                continue
            key = site, sent.topic
            if now - self._confirmed_at.get(key, float("-inf")) >= _CONFIRM_AGAIN_S:
                self._confirmed_at[key] = now
                yield sent.topic

    # -- in a thread of the pool ----------------------------------------------------------

    def _repair(self, repair: _Repair, now: float) -> None:
        self._attempts.run(repair.site, dict(self._list_tasks(repair, now)))

    def _list_tasks(self, repair: _Repair, now: float) -> Iterable[tuple[TaskName, Task]]:
        """What waits now comes before what may wait for days."""
        site = repair.site
        broker = self._connections.broker(site)
        for key in repair.missing:
            yield ("restore", *key), partial(self._restore, key, now)
        for client_id, topic in repair.returned:
            yield ("release", client_id), partial(self._release, site, client_id, topic)
        for scope, session in repair.pending:
            name = "end", scope, session.client_id
            yield name, partial(self._end_pending, scope, session)
        for topic in repair.unannounced:
            yield ("announce", topic), partial(broker.announce, topic, readers=True)
        for topic in repair.waited_for:
            yield ("confirm", topic), partial(self._confirm, site, topic)
        for key in repair.due:
            yield ("renew", *key), partial(self._renew, key, now)

    def _confirm(self, site: str, topic: str) -> None:
        own = self._records.sessions.at_broker_of(site)
        ids = [session.client_id for _, session in own if session.link.topic == topic]
        self._connections.broker(site).confirm_sessions(topic, ids)

    def _restore(self, key: _Key, now: float) -> None:
        """Reserve a lost session again, unless its reader is expected to do so."""
        site, scope, client_id = key
        with self._locks.reserving[client_id]:
            session = self._records.sessions.get(scope, client_id, site)
            if session is None or not session.reserved:
                return
            if self._is_left_to_others(scope, session, now - self._missing_since.get(key, now)):
                return
            _record_remade(self._records, self._locks, key)
            made = self._reserve(key, session, lost=True)
        self._restored[key] = now
        if made is not None:
            self._count_loss(key, session, made)

    def _renew(self, key: _Key, now: float) -> None:
        """Reserve a session again whose reader is away, so that its broker goes on keeping it."""
        self._renewals.put_off(now, key)
        site, scope, client_id = key
        with self._locks.reserving[client_id]:  # its reader does not begin meanwhile
            session = self._records.sessions.get(scope, client_id, site)
            if session is None or not session.reserved:
                return
            if self._is_running(scope) or not self._renewals.is_away(now, key, session):
                return
            made = self._reserve(key, session, lost=False)
            if made is not None and not made.existed:
                _record_remade(self._records, self._locks, key)
        if made is None:
            return
        self._renewals.record(now, key, made)
        if not made.existed:
            self._count_loss(key, session, made)

    def _reserve(self, key: _Key, session: Session, *, lost: bool) -> Reservation | None:
        """Reserve a session again, whose lock is held; None: it was forgotten meanwhile. A change
        that makes it anew or releases it waits; one that has given up a release has left a record
        by which the session is ended."""
        site, _, client_id = key
        broker, topic = self._connections.broker(site), session.link.topic
        at = self._records.sessions.find_position(session)
        made = broker.reserve(client_id, topic, lost=lost, at=at)
        if any(each.site == site for _, each in self._records.sessions.of_client(client_id)):
            return made  # perhaps of another scope by now
        _release_at(self._records, self._connections, site, client_id, topic)
        return None

    def _release(self, site: str, client_id: str, topic: str) -> None:
        """Release a session again that is no longer in the store."""
        with self._locks.reserving[client_id]:
            stored = [session for _, session in self._records.sessions.at_broker_of(site)]
            is_used = any(session.client_id == client_id for session in stored)
            if is_used or self._records.sessions.is_kept(client_id, site):
                return
            _release_at(self._records, self._connections, site, client_id, topic)
        LOG.info("the session of %s at %s/%s was back, and is released", client_id, site, topic)

    def _end_pending(self, scope: str, session: Session) -> None:
        """End a session that a change has dropped while its broker did not answer, unless it has
        been made anew since."""
        client_id, site, sessions = session.client_id, session.site, self._records.sessions
        with self._locks.reserving[client_id]:
            if self._is_running(scope) or sessions.get(scope, client_id, site) != session:
                return
            others = [s for _, s in sessions.at_broker_of(site) if not s.released]
            if not any(each.client_id == client_id for each in others):
                _release_at(self._records, self._connections, site, client_id, session.link.topic)
            with self._locks.writing[client_id]:
                if sessions.get(scope, client_id, site) == session:
                    self._records.write(sessions.drop(scope, client_id, site))
        LOG.info("the session of %s at %s is ended: its broker answers", client_id, site)

    def _is_left_to_others(self, scope: str, session: Session, missing_s: float) -> bool:
        """Whether a job that may run makes the session again, or a start that is about to use it:
        that start has to know, if another reader's session has what this one has lost."""
        if session.job_name is None:
            return False
        if may_run(self._records.incarnations.get(scope, session.job_name)):
            return missing_s < BACK_S
        return session.former is not None and self._is_running(scope)

    def _is_running(self, scope: str) -> bool:
        """Whether a change of a scope is being carried out, and waits for nobody."""
        running = self._changes.under_way(scope)
        return running is not None and running.change.state is ChangeState.RUNNING

    def _count_loss(self, key: _Key, session: Session, made: Reservation) -> None:
        site, scope, _ = key
        is_job = session.job_name is not None
        self.counts[LostSession(site, session.link.topic, session.reader, is_job)] += 1
        consequence = (
            "it goes on where its reader was last seen, as far as the log still holds that"
            if made.position
            else "messages that waited in it are sent again only by sinks that keep what they sent"
        )
        message = (
            f"the session of {session.reader} at {session.site}/{cut(session.link.topic)} was lost"
            f" and is reserved again; {consequence}"
        )
        self._records.write(
            self._records.events.make(
                "session",
                message,
                site=session.site,
                job_name=session.job_name,
                composition=visible_name(scope),
            )
        )


def _record_remade(records: Records, locks: SessionLocks, key: _Key) -> None:
    """Store of the session of a job that has not begun to read it that it was lost: if it is to go
    on where others end, what came since is in theirs, and publishers outside speck do not send it
    again."""
    site, scope, client_id = key
    with locks.writing[client_id]:
        session = records.sessions.get(scope, client_id, site)
        if session is None or session.begun or session.job_name is None:
            return
        remade = replace(session, remade=True, whole=False)
        records.write(records.sessions.put(scope, remade))


def _release_at(
    records: Records, connections: Connections, site: str, client_id: str, topic: str
) -> None:
    """Release a session at its broker. A change may make another one on the link meanwhile, of
    which its sinks have to know."""
    broker = connections.broker(site)
    last_reader = not _is_read(records, site, topic)
    broker.release(client_id, topic, last_reader=last_reader)
    is_read_now = last_reader and _is_read(records, site, topic)
    if is_read_now and passes_reports(connections, site):
        broker.announce(topic, readers=True)


def _is_read(records: Records, site: str, topic: str) -> bool:
    """Whether a link has readers, or is about to have some."""
    there = (session for _, session in records.sessions.at_broker_of(site) if not session.released)
    return any(session.link.topic == topic for session in there)
