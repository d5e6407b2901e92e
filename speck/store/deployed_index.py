"""What is deployed, in memory: incarnations and sessions by scope and by site, parsed once.

Every poll and every plan needs these records. Reading all of them costs nothing as long as none has
changed, and those of one site cost what is there, however many sites there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from speck.model.incarnation import Incarnation, Session

Key = tuple[str, str]
"""(scope, job name), or (scope, key of a session's record)"""

_T = TypeVar("_T")


class _Index(Generic[_T]):
    """Values by scope and by site. One thread at a time writes, any reads."""

    def __init__(self) -> None:
        self._by_scope: defaultdict[str, dict[str, _T]] = defaultdict(dict)
        self._by_site: defaultdict[str, dict[Key, _T]] = defaultdict(dict)
        self._site_of: dict[Key, str] = {}
        self._writes_at: defaultdict[str, int] = defaultdict(int)
        self._writes = 0
        self._all: tuple[int, Mapping[Key, _T]] = (-1, {})

    def put(self, key: Key, value: _T, site: str) -> None:
        """Add a value, or replace it."""
        before = self._site_of.get(key)
        if before not in (None, site):
            self.drop(key)
        self._by_scope[key[0]][key[1]] = value
        self._by_site[site][key] = value
        self._site_of[key] = site
        self._count(site)

    def drop(self, key: Key) -> None:
        """Remove a value, if it is there."""
        site = self._site_of.pop(key, None)
        if site is not None:
            del self._by_scope[key[0]][key[1]]
            del self._by_site[site][key]
            self._count(site)

    def _count(self, site: str) -> None:
        """After a write: what was read before it is out of date."""
        self._writes_at[site] += 1
        self._writes += 1

    def get(self, scope: str, name: str) -> _T | None:
        values = self._by_scope.get(scope)
        return values.get(name) if values else None

    def of_scope(self, scope: str) -> dict[str, _T]:
        values = self._by_scope.get(scope)
        return values.copy() if values else {}

    def at_site(self, site: str) -> dict[Key, _T]:
        values = self._by_site.get(site)
        return values.copy() if values else {}

    def writes_at(self, site: str) -> int:
        return self._writes_at.get(site, 0)

    def all(self) -> Mapping[Key, _T]:
        """All values in order of their keys; not a copy."""
        writes, values = self._all
        if writes != (now := self._writes):
            scopes = sorted(self._by_scope.copy().items())
            values = {
                (scope, name): value
                for scope, some in scopes
                for name, value in sorted(some.copy().items())
            }
            self._all = now, values
        return values


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
            self._incarnations.put((scope, job_name), incarnation, incarnation.job.site)

    def put_session(self, scope: str, key: str, session: Session | None) -> None:
        """Note the session that is stored now; None: it was deleted."""
        if session is None:
            self._sessions.drop((scope, key))
        else:
            self._sessions.put((scope, key), session, session.site)

    def incarnation(self, scope: str, job_name: str) -> Incarnation | None:
        return self._incarnations.get(scope, job_name)

    def incarnations(self, scope: str) -> dict[str, Incarnation]:
        """Job name -> incarnation of one scope, in order of names."""
        return dict(sorted(self._incarnations.of_scope(scope).items()))

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
        return [session for _, session in sorted(self._sessions.of_scope(scope).items())]

    def all_sessions(self) -> Sequence[tuple[str, Session]]:
        """(scope, session), over all scopes."""
        return [(scope, session) for (scope, _), session in self._sessions.all().items()]

    def sessions_on(self, site: str) -> list[tuple[str, Session]]:
        """(scope, session), of the sessions at the broker of one site."""
        return [(scope, s) for (scope, _), s in sorted(self._sessions.at_site(site).items())]
