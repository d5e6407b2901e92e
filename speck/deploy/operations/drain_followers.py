"""The sessions that follow one which is drained."""

from __future__ import annotations

from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.model.incarnation import Session
from speck.model.link_operations import Drain
from speck.model.observation import BrokerView


class DrainFollowers:
    """Those that were there when the drain began."""

    def __init__(self, operation: Drain, context: Context):
        self._operation = operation
        self._context = context
        self._client_ids: frozenset[str] = frozenset()

    def _list(self) -> frozenset[str]:
        """The client ids of the sessions that are there to follow this one, or to begin where it
        ends."""
        if not self._operation.followed:
            return frozenset()
        there = self._context.records.sessions.on_link(self._context.scope, self._operation.link)
        return frozenset(s.client_id for s in there if self._follows(s))

    def _follows(self, session: Session) -> bool:
        own = self._operation.client_id
        is_placed = session.follows or session.followed_by or session.former or session.skip
        is_new = session.job_name is not None and not session.begun and not is_placed
        return session.reserved and (
            session.follows == own or (is_new and own != session.client_id)
        )

    def restore(self, view: BrokerView) -> None:
        """Make the sessions of followers again that a broker has lost which was killed before it
        was stored that they are there: nobody would look for them. What came until now, since they
        were lost, is taken by the reader that is drained."""
        self._client_ids = self._list()
        topic = self._operation.link.topic
        for client_id in sorted(self._client_ids):
            self._record_complete(client_id)
            if (client_id, topic) not in view.sessions:
                records, site = self._context.records, self._operation.site
                session = records.sessions.get(self._context.scope, client_id, site)
                at = None if session is None else records.sessions.find_position(session)
                self._context.connections.broker(site).reserve(client_id, topic, at=at)

    def _record_complete(self, client_id: str) -> None:
        """Store that a session lacks nothing but what the reader that is drained will take."""
        context, sessions = self._context, self._context.records.sessions
        with context.writing[client_id]:
            session = sessions.get(context.scope, client_id, self._operation.site)
            if session is not None and session.remade:
                complete = replace(session, remade=False)
                context.records.write(sessions.put(context.scope, complete))

    def record(self) -> None:
        """Store that sessions which were there when the drain began hold all that its reader has
        not taken, also if the change ends before they take its place. One of them may be released
        at the same time."""
        context = self._context
        for client_id in sorted(self._client_ids):
            with context.writing[client_id]:
                session = context.records.sessions.get(
                    context.scope, client_id, self._operation.site
                )
                if session is not None and self._follows(session):
                    whole = replace(session, whole=True)
                    context.records.write(context.records.sessions.put(context.scope, whole))
