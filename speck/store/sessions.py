"""Sessions in the store: those of the jobs' readers, those reserved for readers outside, and those
that wait for a reader."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.observation import Position
from speck.store.scoped_index import ScopedIndex
from speck.store.tables import Batch, Tables


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session that an adoption left at the broker of a site, for the next job of its name that
    reads its link (None: no known topic fits its id). `messages` is how many wait in it at least,
    by the numbers that sinks report; None if none reports any: then it may hold some, too."""

    site: str
    client_id: str
    job_name: str
    link: Link | None
    messages: int | None


Numbers = tuple[tuple[str, int, int], ...]
"""A position as it is stored: (series, epoch, number)."""


@dataclass(frozen=True, slots=True)
class SeenPosition:
    """Where the reader of a session was last seen in a log. `since` is that of the session then: it
    tells whether the session is the same."""

    site: str
    client_id: str
    since: Numbers
    numbers: Numbers

    @property
    def position(self) -> Position:
        return {(series, epoch): number for series, epoch, number in self.numbers}


class SessionRecords:
    """All sessions. `ses/<scope>/<client id>/<site>`, `kept/<client id>/<site>`,
    `seen/<client id>/<site>`; the site is that of the broker."""

    def __init__(self, tables: Tables):
        self._index = ScopedIndex[Session]()
        self._sessions = tables.table("ses", Session, on_write=self._index_session)
        self._kept = tables.kept("kept", KeptSession)
        self._seen = tables.kept("seen", SeenPosition)

    def get(self, scope: str, client_id: str, site: str) -> Session | None:
        return self._index.get(scope, f"{client_id}/{site}")

    def of_scope(self, scope: str) -> list[Session]:
        """The sessions of one scope, in order of their keys."""
        return list(self._index.of_scope(scope).values())

    def on_link(self, scope: str, link: Link) -> list[Session]:
        """The sessions of one scope on a link."""
        return [session for (at, _), session in self._index.marked(link) if at == scope]

    def of_client(self, client_id: str) -> list[tuple[str, Session]]:
        """(scope, session) of every session of a client id, one for each broker and scope."""
        return [(scope, session) for (scope, _), session in self._index.marked(client_id)]

    def all(self) -> list[tuple[str, Session]]:
        """(scope, session), over all scopes."""
        return [(scope, session) for (scope, _), session in self._index.all().items()]

    def at_broker_of(self, site: str) -> list[tuple[str, Session]]:
        """(scope, session), of those at the broker of one site."""
        return [(scope, s) for (scope, _), s in sorted(self._index.at_site(site).items())]

    @property
    def writes(self) -> int:
        """A number that changes whenever a session does."""
        return self._index.writes

    def has_reserved(self, link: Link) -> bool:
        """Whether any scope has a session on a link, as far as is known."""
        return any(session.reserved for _, session in self._index.marked(link))

    def links_read_outside(self, links: Iterable[Link], scopes: Collection[str]) -> frozenset[Link]:
        """Those of the links on which a scope other than `scopes` has a session."""
        return frozenset(
            link
            for link in links
            if any(scope not in scopes for (scope, _), _ in self._index.marked(link))
        )

    def uses_artifact(self, sha256: str) -> bool:
        """Whether the reader of a session is to be started from an artifact."""
        return self._index.has_mark(sha256)

    def put(self, scope: str, session: Session) -> Batch:
        return self._sessions.put(session, scope, session.client_id, session.site)

    def drop(self, scope: str, client_id: str, site: str) -> Batch:
        return self._sessions.drop(scope, client_id, site)

    # -- positions in logs ----------------------------------------------------------------

    def find_seen(self, session: Session) -> SeenPosition | None:
        """Where the reader of this session was last seen in a log."""
        seen = self._seen.get(session.client_id, session.site)
        return seen if seen is not None and seen.since == session.since else None

    def find_position(self, session: Session) -> Position | None:
        """Where in a log the reader of this session goes on: where it was last seen, or where its
        session was made. None if neither is known."""
        seen = self.find_seen(session)
        if seen is not None:
            return seen.position
        return {(series, epoch): n for series, epoch, n in session.since} or None

    def all_seen(self) -> list[SeenPosition]:
        """All that were stored."""
        return list(self._seen.values())

    def put_seen(self, seen: SeenPosition) -> Batch:
        return self._seen.put(seen, seen.client_id, seen.site)

    def drop_seen(self, seen: SeenPosition) -> Batch:
        return self._seen.drop(seen.client_id, seen.site)

    # -- without a reader -----------------------------------------------------------------

    def kept(self) -> list[KeptSession]:
        """Those that wait for the next job of their names."""
        return list(self._kept.values())

    def is_kept(self, client_id: str, site: str) -> bool:
        """Whether a session waits for the next job of its name."""
        return self._kept.has(client_id, site)

    def put_kept(self, sessions: Iterable[KeptSession]) -> Batch:
        """Keep these sessions, instead of those that were kept so far."""
        batch: Batch = {self._kept.key(identity): None for identity, _ in self._kept.items()}
        for each in sessions:
            batch |= self._kept.put(each, each.client_id, each.site)
        return batch

    def drop_kept(self, client_id: str, site: str) -> Batch:
        """A session has its reader again."""
        return self._kept.drop(client_id, site) if self.is_kept(client_id, site) else {}

    def _index_session(self, identity: str, session: Session | None) -> None:
        scope, _, rest = identity.partition("/")
        if session is None:
            self._index.drop((scope, rest))
        else:
            artifacts: Sequence[str] = (session.job.artifact,) if session.job is not None else ()
            marks = session.link, session.client_id, *artifacts
            self._index.put((scope, rest), session, session.site, *marks)
