"""Records in memory, by scope, site and other marks: incarnations and sessions, parsed once.

Every poll and every plan needs them. Reading all of them costs nothing as long as none has changed,
and those of one site or link cost what is there, however many there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Key = tuple[str, str]
"""(scope, rest of a record's id)"""

_T = TypeVar("_T")


class ScopedIndex(Generic[_T]):
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
        """Note the value that is stored now."""
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
        """Note that a value was deleted; there may have been none."""
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
