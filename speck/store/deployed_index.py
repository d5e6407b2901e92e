"""What is deployed, in memory: incarnations and sessions by scope, site and link, parsed once.

Every poll and every plan needs these records. Reading all of them costs nothing as long as none has
changed, and those of one site or link cost what is there, however many there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link

Key = tuple[str, str]
"""(scope, job name), or (scope, key of a session's record)"""

_T = TypeVar("_T")


class _Index(Generic[_T]):
    """Values by scope, by site and by other marks. One thread at a time writes, any reads."""

    def __init__(self) -> None:
        self._by_scope: defaultdict[str, dict[str, _T]] = defaultdict(dict)
        self._by_site: defaultdict[str, dict[Key, _T]] = defaultdict(dict)
        self._by_mark: defaultdict[Hashable, dict[Key, _T]] = defaultdict(dict)
        self._marks_of: dict[Key, tuple[str, tuple[Hashable, ...]]] = {}
        self._writes_at: defaultdict[str, int] = defaultdict(int)
        self.writes = 0
        """A number that changes whenever a value does."""
        self._writes_in: defaultdict[str, int] = defaultdict(int)
        self._sorted: dict[str, tuple[int, Mapping[str, _T]]] = {}
        self._all: tuple[int, Mapping[Key, _T]] = (-1, {})

    def put(self, key: Key, value: _T, site: str, *marks: Hashable) -> None:
        """Add a value, or replace it."""
        before = self._marks_of.get(key)
        if before is not None and before != (site, marks):
            self.drop(key)
        self._by_scope[key[0]][key[1]] = value
        self._by_site[site][key] = value
        for mark in marks:
            self._by_mark[mark][key] = value
        self._marks_of[key] = site, marks
        self._count(key[0], site)

    def drop(self, key: Key) -> None:
        """Remove a value, if it is there."""
        site, marks = self._marks_of.pop(key, (None, ()))
        if site is not None:
            del self._by_scope[key[0]][key[1]]
            del self._by_site[site][key]
            for mark in marks:
                del self._by_mark[mark][key]
                if not self._by_mark[mark]:
                    del self._by_mark[mark]
            self._count(key[0], site)

    def _count(self, scope: str, site: str) -> None:
        """After a write: what was read before it is out of date."""
        self._writes_in[scope] += 1
        self._writes_at[site] += 1
        self.writes += 1

    def get(self, scope: str, name: str) -> _T | None:
        values = self._by_scope.get(scope)
        return values.get(name) if values else None

    def of_scope(self, scope: str) -> Mapping[str, _T]:
        """In order of names; not a copy."""
        writes, values = self._sorted.get(scope, (-1, {}))
        if writes != (now := self._writes_in.get(scope, 0)):
            values = dict(sorted(self._by_scope.get(scope, {}).copy().items()))
            self._sorted[scope] = now, values
        return values

    def marked(self, mark: Hashable) -> list[tuple[Key, _T]]:
        """(key, value) of those with a mark, in order of their keys."""
        values = self._by_mark.get(mark)
        return sorted(values.copy().items(), key=_key_of) if values else []

    def has_mark(self, mark: Hashable) -> bool:
        """Whether any value has a mark."""
        return mark in self._by_mark

    def at_site(self, site: str) -> dict[Key, _T]:
        values = self._by_site.get(site)
        return values.copy() if values else {}

    def writes_at(self, site: str) -> int:
        return self._writes_at.get(site, 0)

    def all(self) -> Mapping[Key, _T]:
        """All values in order of their keys; not a copy."""
        writes, values = self._all
        if writes != (now := self.writes):
            scopes = sorted(self._by_scope.copy())
            values = {
                (scope, name): value
                for scope in scopes
                for name, value in self.of_scope(scope).items()
            }
            self._all = now, values
        return values


def _key_of(item: tuple[Key, object]) -> Key:
    return item[0]


class DeployedIndex:
    """The stored incarnations and sessions."""

    def __init__(self) -> None:
        self._incarnations = _Index[Incarnation]()
        self._sessions = _Index[Session]()

    def put_incarnation(self, scope: str, job_name: str, incarnation: Incarnation | None) -> None:
        """Note the incarnation that is stored now; None: it was deleted."""
        if incarnation is None:
            self._incarnations.drop((scope, job_name))
        else:
            job = incarnation.job
            self._incarnations.put((scope, job_name), incarnation, job.site, job.sink, job.jar)

    def put_session(self, scope: str, key: str, session: Session | None) -> None:
        """Note the session that is stored now; None: it was deleted."""
        if session is None:
            self._sessions.drop((scope, key))
        else:
            jars = (session.job.jar,) if session.job is not None else ()
            marks = session.link, session.client_id, *jars
            self._sessions.put((scope, key), session, session.site, *marks)

    def incarnation(self, scope: str, job_name: str) -> Incarnation | None:
        return self._incarnations.get(scope, job_name)

    @property
    def writes(self) -> tuple[int, int]:
        """Numbers that change whenever an incarnation or a session does."""
        return self._incarnations.writes, self._sessions.writes

    def incarnations(self, scope: str) -> Mapping[str, Incarnation]:
        """Job name -> incarnation of one scope, in order of names; not a copy."""
        return self._incarnations.of_scope(scope)

    def writing(self, link: Link) -> list[tuple[Key, Incarnation]]:
        """((scope, job name), incarnation), of those whose sink feeds a link."""
        return self._incarnations.marked(link)

    def uses_jar(self, sha256: str) -> bool:
        """Whether an incarnation was started from a jar, or the reader of a session is to be."""
        return self._incarnations.has_mark(sha256) or self._sessions.has_mark(sha256)

    def all_incarnations(self) -> Mapping[Key, Incarnation]:
        """(scope, job name) -> incarnation, in this order; not a copy."""
        return self._incarnations.all()

    def incarnations_at(self, site: str) -> dict[Key, Incarnation]:
        """(scope, job name) -> incarnation, of those at the engine of one site."""
        return self._incarnations.at_site(site)

    def writes_at(self, site: str) -> int:
        """A number that changes whenever an incarnation at the engine of a site does."""
        return self._incarnations.writes_at(site)

    def session(self, scope: str, key: str) -> Session | None:
        return self._sessions.get(scope, key)

    def sessions(self, scope: str) -> list[Session]:
        """The sessions of one scope, in order of their keys."""
        return list(self._sessions.of_scope(scope).values())

    def sessions_of(self, what: Link | str) -> list[tuple[str, Session]]:
        """(scope, session), of those on a link or with a client id."""
        return [(scope, session) for (scope, _), session in self._sessions.marked(what)]

    def all_sessions(self) -> Sequence[tuple[str, Session]]:
        """(scope, session), over all scopes."""
        return [(scope, session) for (scope, _), session in self._sessions.all().items()]

    def sessions_on(self, site: str) -> list[tuple[str, Session]]:
        """(scope, session), of the sessions at the broker of one site."""
        return [(scope, s) for (scope, _), s in sorted(self._sessions.at_site(site).items())]
