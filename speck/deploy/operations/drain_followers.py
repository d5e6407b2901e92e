"""The sessions that follow one whose reader is drained, and stops."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from speck.deploy.operations.context import Context
from speck.errors import PermanentError, TransientError
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.link_operations import Drain
from speck.model.observation import BrokerView
from speck.model.values import cut


def refuse_to_stop(context: Context, job: Job) -> None:
    """Raise PermanentError if a broker has lost a session since the drain of a reader that is to be
    stopped, on a link that is fed from outside: one that begins where this reader ends. The session
    is made again: drained once more, the reader takes first what came until then. If the broker
    does not answer, the starts of the others look for their sessions."""
    own, link, site = context.source_client_id(job), job.source, job.source_site
    there = context.records.sessions.on_link(context.scope, link)
    waiting = [each for each in there if each.fed_outside and _follows(each, own)]
    if not waiting:
        return
    with suppress(TransientError):
        view = context.views.view(site)
        if link.topic in view.ends:  # a log still holds what came meanwhile
            return
        lost = [s for s in waiting if s.remade or (s.client_id, link.topic) not in view.sessions]
        for session in lost:
            with context.reserving[session.client_id]:
                _reserve_again(context, session)
                _record_complete(context, session.client_id, site)
        if lost:
            raise PermanentError(
                f"cannot stop {job.job_name}: the broker of {site} had lost the session of"
                f" {lost[0].reader} on {cut(link.topic)}, which begins where {job.job_name} ends;"
                f" apply again: {job.job_name} then takes what came meanwhile"
            )


def _follows(session: Session, own: str) -> bool:
    """Whether a session waits to follow the one with this client id, or to begin where it ends."""
    is_placed = session.follows or session.followed_by or session.former or session.skip
    is_new = session.job_name is not None and not session.begun and not is_placed
    return session.reserved and (session.follows == own or (is_new and own != session.client_id))


def _reserve_again(context: Context, session: Session) -> None:
    at = context.records.sessions.find_position(session)
    broker = context.connections.broker(session.site)
    broker.reserve(session.client_id, session.link.topic, at=at)


def _record_complete(context: Context, client_id: str, site: str) -> None:
    """Store that a session lacks nothing but what the reader that runs will take."""
    sessions = context.records.sessions
    with context.writing[client_id]:
        session = sessions.get(context.scope, client_id, site)
        if session is not None and session.remade:
            complete = replace(session, remade=False)
            context.records.write(sessions.put(context.scope, complete))


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
        own = self._operation.client_id
        return frozenset(s.client_id for s in there if _follows(s, own))

    def restore(self, view: BrokerView) -> None:
        """Make the sessions of followers again that a broker has lost which was killed before it
        was stored that they are there: nobody would look for them. What came until now, since they
        were lost, is taken by the reader that is drained."""
        self._client_ids = self._list()
        context, topic, site = self._context, self._operation.link.topic, self._operation.site
        for client_id in sorted(self._client_ids):
            _record_complete(context, client_id, site)
            session = context.records.sessions.get(context.scope, client_id, site)
            if session is not None and (client_id, topic) not in view.sessions:
                _reserve_again(context, session)

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
                if session is not None and _follows(session, self._operation.client_id):
                    whole = replace(session, whole=True)
                    context.records.write(context.records.sessions.put(context.scope, whole))
