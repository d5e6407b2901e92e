"""Which jobs of all compositions read a link, and which write it, in memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from speck.model.link import JobLinks

LinkKey = tuple[str, str]
"""(site of the broker, topic)"""
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
        self._readers: defaultdict[LinkKey, set[ScopedLinks]] = defaultdict(set)
        self._writers: defaultdict[LinkKey, set[ScopedLinks]] = defaultdict(set)

    def put(self, scope: str, jobs: Iterable[JobLinks]) -> None:
        """Replace the jobs of a scope."""
        with self._lock:
            for job in self._by_scope.pop(scope, ()):
                for index, key in ((self._readers, job.source), (self._writers, job.sink)):
                    index[key].discard((scope, job))
                    if not index[key]:
                        del index[key]
            self._by_scope[scope] = tuple(jobs)
            for job in self._by_scope[scope]:
                self._readers[job.source].add((scope, job))
                self._writers[job.sink].add((scope, job))
            if not self._by_scope[scope]:
                del self._by_scope[scope]

    def of(self, scope: str) -> tuple[JobLinks, ...]:
        """The jobs of a scope."""
        with self._lock:
            return self._by_scope.get(scope, ())

    def is_read(self, key: LinkKey, outside: Collection[str]) -> bool:
        """Whether a job of a scope other than `outside` reads a link."""
        with self._lock:
            return any(scope not in outside for scope, _ in self._readers.get(key, ()))

    def is_written(self, key: LinkKey, outside: Collection[str]) -> bool:
        """Whether a job of a scope other than `outside` writes a link."""
        with self._lock:
            return any(scope not in outside for scope, _ in self._writers.get(key, ()))

    def find_downstream(
        self, keys: Iterable[LinkKey], outside: Collection[str]
    ) -> list[ScopedLinks]:
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
                    if job.sink not in visited:
                        visited.add(job.sink)
                        ahead.append(job.sink)
        return sorted(jobs)
