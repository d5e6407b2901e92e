"""Stores where the readers of logs were last seen.

A broker that keeps logs may lose a reader's place, since it expires or is deleted, and keep the
log. The reader then goes on where it was last seen: at the end of the log it would miss what it had
not taken, and nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping

from speck.model.incarnation import Session
from speck.model.observation import BrokerView, Position
from speck.sites.poll_cache import Poll
from speck.store.records import Records
from speck.store.sessions import Numbers, SeenPosition
from speck.store.tables import Batch

KEEP_S = 15.0
"""The positions of a reader are stored at most so often. Going on at an older one it takes a few
messages twice, and loses none."""

Key = tuple[str, str, str]
"""(site, scope, client id) of a session."""


class SeenPositions:
    """Compares the polls of brokers that keep logs with what is stored."""

    def __init__(self, records: Records):
        self._records = records
        self._since: dict[Key, tuple[Numbers, float]] = {}
        """When a session was first met in its present form: an earlier poll may have seen the place
        of a former one."""
        self._stored_at: dict[Key, float] = {}

    def store(
        self,
        now: float,
        polls: Mapping[str, Poll[BrokerView]],
        reserved: Mapping[Key, Session],
    ) -> None:
        """Store the positions that these polls show, and drop those of sessions that are gone."""
        self._since = {key: since for key, since in self._since.items() if key in reserved}
        self._stored_at = {key: at for key, at in self._stored_at.items() if key in reserved}
        batch: Batch = {}
        for key, session in reserved.items():
            poll = polls.get(session.site)
            if poll is None or poll.answer is None or not poll.answer.ends:
                continue
            position = poll.answer.find_position(session.client_id, session.link.topic)
            if position is not None and self._is_of(key, session, poll.begun, now):
                batch |= self._put(key, session, position, now)
        own = {(site, client_id) for site, _, client_id in reserved}
        for seen in self._records.sessions.all_seen():
            if (seen.site, seen.client_id) not in own:
                batch |= self._records.sessions.drop_seen(seen)
        if batch:
            self._records.write(batch)

    def _is_of(self, key: Key, session: Session, begun: float, now: float) -> bool:
        """Whether a poll that began then has seen the session as it is now."""
        since, at = self._since.get(key, (None, now))
        if since != session.since:
            self._since[key] = session.since, now
            return False
        return begun > at

    def _put(self, key: Key, session: Session, position: Position, now: float) -> Batch:
        before = self._records.sessions.find_seen(session)
        stored_at = self._stored_at.setdefault(key, now)
        if before is not None and (before.position == position or now - stored_at < KEEP_S):
            return {}
        self._stored_at[key] = now
        numbers = tuple(sorted((*part, number) for part, number in position.items()))
        seen = SeenPosition(session.site, session.client_id, session.since, numbers)
        return self._records.sessions.put_seen(seen)
