"""Where the messages of links arise: which edges' data comes over them, and how much of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

Link = tuple[str, str]
"""(site of the broker, topic)"""

Shares = Mapping[str | None, float]
"""Edge -> share of the bytes that arise there; None: at no edge."""


class Arising:
    """Jobs between links, each link worked out once: compositions are long chains, and wide."""

    def __init__(self, edges: Collection[str]) -> None:
        self._edges = frozenset(edges)
        self._feeders: defaultdict[Link, list[tuple[Link, float | None]]] = defaultdict(list)
        self._known: dict[Link, tuple[Shares, bool]] = {}

    def add(self, source: Link, sink: Link, bytes_out_rate: float | None) -> None:
        """A job from `source` to `sink`; all are added before anything is asked."""
        self._feeders[sink].append((source, bytes_out_rate))

    def at(self, link: Link) -> tuple[Shares, bool]:
        """Where what comes over a link arises, and whether the shares are known: without rates
        of several that feed it only their names are.

        What a link's own output feeds back to it does not count.
        """
        begun = {link}
        way: list[tuple[Link, Iterator[Link]]] = [(link, self._before(link))]
        while way:
            last, before = way[-1]
            further = next((each for each in before if each not in begun), None)
            if further is None:
                way.pop()
                if last not in self._known:
                    self._known[last] = self._mixed(last)
            elif further not in self._known:
                begun.add(further)
                way.append((further, self._before(further)))
        return self._known[link]

    def _before(self, link: Link) -> Iterator[Link]:
        if link[0] in self._edges:
            return iter(())
        return (source for source, _ in self._feeders[link])

    def _mixed(self, link: Link) -> tuple[Shares, bool]:
        if link[0] in self._edges:
            return {link[0]: 1.0}, True
        parts = [(self._known[s], rate) for s, rate in self._feeders[link] if s in self._known]
        origins = {origin for (shares, _), _ in parts for origin in shares}
        if not parts:
            return {None: 1.0}, True
        if len(origins) == 1:
            return dict.fromkeys(origins, 1.0), True
        found = dict.fromkeys(origins, 0.0)
        for (shares, _), rate in parts:
            for origin, share in shares.items():
                found[origin] += (rate or 0.0) * share
        total = sum(found.values())
        known = total > 0 and all(each and rate is not None for (_, each), rate in parts)
        return {origin: part / total if total else 0.0 for origin, part in found.items()}, known
