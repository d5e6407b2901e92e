"""Which jobs of all compositions read a link, and which write it, in memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from speck.model.link import JobLinks, Link

ScopedLinks = tuple[str, JobLinks]


@dataclass(frozen=True, slots=True)
class StoredLinks:
    """The record of a scope's links: of its newest revision, and of earlier ones that may still
    run."""

    newest: tuple[JobLinks, ...] = ()
    earlier: tuple[JobLinks, ...] = ()


class LinkIndex:
    """The links of every scope's jobs, by reader and by writer. Thread-safe.

    A request costs what it finds, however many compositions there are.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_scope: dict[str, tuple[JobLinks, ...]] = {}
        self._readers: defaultdict[Link, set[ScopedLinks]] = defaultdict(set)
        self._writers: defaultdict[Link, set[ScopedLinks]] = defaultdict(set)

    def put(self, scope: str, jobs: Iterable[JobLinks]) -> None:
        """Replace the jobs of a scope."""
        with self._lock:
            for job in self._by_scope.pop(scope, ()):
                writes = ((self._writers, link) for link in job.port)
                for index, key in ((self._readers, job.source), *writes):
                    index[key].discard((scope, job))
                    if not index[key]:
                        del index[key]
            self._by_scope[scope] = tuple(jobs)
            for job in self._by_scope[scope]:
                self._readers[job.source].add((scope, job))
                for link in job.port:
                    self._writers[link].add((scope, job))
            if not self._by_scope[scope]:
                del self._by_scope[scope]

    def of(self, scope: str) -> tuple[JobLinks, ...]:
        """The jobs of a scope."""
        with self._lock:
            return self._by_scope.get(scope, ())

    def is_read(self, key: Link, outside: Collection[str]) -> bool:
        """Whether a job of a scope other than `outside` reads a link."""
        with self._lock:
            return any(scope not in outside for scope, _ in self._readers.get(key, ()))

    def is_written(self, key: Link, outside: Collection[str]) -> bool:
        """Whether a job of a scope other than `outside` writes a link."""
        with self._lock:
            return any(scope not in outside for scope, _ in self._writers.get(key, ()))

    def find_downstream(self, keys: Iterable[Link], outside: Collection[str]) -> list[ScopedLinks]:
        """The jobs of scopes other than `outside` to which messages of these links may flow,
        sorted."""
        jobs: set[ScopedLinks] = set()
        ahead = list(dict.fromkeys(keys))
        visited = set(ahead)
        with self._lock:
            while ahead:
                for scope, job in self._readers.get(ahead.pop(), ()):
                    if scope in outside:
                        continue
                    jobs.add((scope, job))
                    new = [link for link in job.port if link not in visited]
                    visited.update(new)
                    ahead += new
        return sorted(jobs)
