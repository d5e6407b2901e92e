"""How records go from link to link: through jobs, once for each link of their ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from speck.model.job import Job
from speck.model.link import Link

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class Ways:
    """The name, source and sink of each job, once for each link of its port, indexed."""

    ends: tuple[tuple[str, Link, Link], ...]

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Ways:
        return cls(tuple((job.job_name, *way) for job in jobs for way in job.ways))

    @cached_property
    def sources(self) -> frozenset[Link]:
        return frozenset(source for _, source, _ in self.ends)

    @cached_property
    def sinks(self) -> frozenset[Link]:
        return frozenset(sink for *_, sink in self.ends)

    def __contains__(self, link: Link) -> bool:
        """Whether a job reads or writes a link."""
        return link in self.sources or link in self.sinks

    def list_onwards(self, link: Link) -> Sequence[Link]:
        """The links to which the readers of a link write."""
        return self._onwards.get(link, ())

    def list_readers(self, link: Link) -> Sequence[str]:
        return self._readers.get(link, ())

    def find_reached(self, starts: Iterable[Link]) -> set[Link]:
        """These links, and all that come behind them."""
        return _follow(starts, self._onwards)

    def find_upstream(self, link: Link) -> set[Link]:
        """A link, and all that come before it."""
        return _follow([link], self._backwards)

    def find_between(self, first: Link, last: Link) -> set[str]:
        """The jobs on paths from one link to another."""
        between = self.find_reached([first]) & self.find_upstream(last)
        return {
            name for link in between for name, sink in self._from.get(link, ()) if sink in between
        }

    @cached_property
    def _from(self) -> Mapping[Link, Sequence[tuple[str, Link]]]:
        return group((source, (name, sink)) for name, source, sink in self.ends)

    @cached_property
    def _onwards(self) -> Mapping[Link, Sequence[Link]]:
        return group((source, sink) for _, source, sink in self.ends)

    @cached_property
    def _backwards(self) -> Mapping[Link, Sequence[Link]]:
        return group((sink, source) for _, source, sink in self.ends)

    @cached_property
    def _readers(self) -> Mapping[Link, Sequence[str]]:
        return group((source, name) for name, source, _ in self.ends)


def _follow(starts: Iterable[Link], onwards: Mapping[Link, Sequence[Link]]) -> set[Link]:
    ahead = list(starts)
    visited = set(ahead)
    while ahead:
        new = set(onwards.get(ahead.pop(), ())) - visited
        visited |= new
        ahead += new
    return visited


def group(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The second ones by the first."""
    groups: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)
