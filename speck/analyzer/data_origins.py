"""Data origin: at which edges the data of a link is produced, and the share of each edge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

Link = tuple[str, str]
"""(site of the broker, topic)"""

Shares = Mapping[str | None, float]
"""Edge -> share of the bytes produced there; None: produced at no edge."""


class DataOrigins:
    """A graph of jobs between links. Each link is computed once: graphs may be deep and wide."""

    def __init__(self, edges: Collection[str]) -> None:
        self._edges = frozenset(edges)
        self._inputs: defaultdict[Link, list[tuple[Link, float | None]]] = defaultdict(list)
        self._results: dict[Link, tuple[Shares, bool]] = {}

    def add(self, source: Link, sink: Link, bytes_out_rate: float | None) -> None:
        """Add a job from `source` to `sink`. Add all jobs before the first call of `origins_of`."""
        self._inputs[sink].append((source, bytes_out_rate))

    def origins_of(self, link: Link) -> tuple[Shares, bool]:
        """The origins of a link's data, and whether their shares are known.

        If several jobs feed the link and a rate is missing, only the names of the edges are known.
        Data that a link's own output feeds back to it does not count.
        """
        visited = {link}
        path: list[tuple[Link, Iterator[Link]]] = [(link, self._list_sources(link))]
        while path:
            last, sources = path[-1]
            next_link = next((source for source in sources if source not in visited), None)
            if next_link is None:
                path.pop()
                if last not in self._results:
                    self._results[last] = self._mix(last)
            elif next_link not in self._results:
                visited.add(next_link)
                path.append((next_link, self._list_sources(next_link)))
        return self._results[link]

    def _list_sources(self, link: Link) -> Iterator[Link]:
        if link[0] in self._edges:
            return iter(())
        return (source for source, _ in self._inputs[link])

    def _mix(self, link: Link) -> tuple[Shares, bool]:
        if link[0] in self._edges:
            return {link[0]: 1.0}, True
        parts = [(self._results[s], rate) for s, rate in self._inputs[link] if s in self._results]
        origins = {origin for (shares, _), _ in parts for origin in shares}
        if not parts:
            return {None: 1.0}, True
        if len(origins) == 1:
            return dict.fromkeys(origins, 1.0), True
        bytes_by_origin = dict.fromkeys(origins, 0.0)
        for (shares, _), rate in parts:
            for origin, share in shares.items():
                bytes_by_origin[origin] += (rate or 0.0) * share
        total = sum(bytes_by_origin.values())
        is_known = total > 0 and all(
            part_is_known and rate is not None for (_, part_is_known), rate in parts
        )
        return {
            origin: part / total if total else 0.0 for origin, part in bytes_by_origin.items()
        }, is_known
