"""Where data enters the system, and the share of each place in what flows anywhere. Pure.

Data enters at links that outsiders publish to (declared inputs, topics that no job writes); all
that is known of its origin is the site of their broker. A job without input is an origin of its
own. From there shares are passed on in proportion to bytes: a job's output has the shares of its
input, whatever it filters or adds, and a link those of all that is written to it. Where jobs and
inner brokers are plays no part, so moving them changes no share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

Node = TypeVar("Node", bound=Hashable)


class Origin(NamedTuple):
    """A site, to whose broker outsiders publish, or a job that takes no input."""

    kind: Literal["site", "job"]
    name: str


class Mix(NamedTuple):
    """The share (0 to 1) of each origin; if they are not known, their names are all that is."""

    shares: Mapping[Origin, float]
    is_known: bool


class Tracer(Generic[Node]):
    """A graph of flows. Each node is computed once: graphs may be deep and wide."""

    def __init__(self) -> None:
        self._entries: defaultdict[Node, list[tuple[Origin, float | None]]] = defaultdict(list)
        self._inputs: defaultdict[Node, list[tuple[Node, float | None]]] = defaultdict(list)
        self._mixes: dict[Node, Mix] = {}

    def enter(self, node: Node, origin: Origin, bytes_per_s: float | None) -> None:
        """Add data that enters at `node`. Add everything before the first call of `trace`; None:
        it is not known how much it is."""
        self._entries[node].append((origin, bytes_per_s))

    def flow(self, start: Node, end: Node, bytes_per_s: float | None) -> None:
        """Add what flows from `start` to `end`."""
        self._inputs[end].append((start, bytes_per_s))

    def trace(self, node: Node) -> Mix:
        """The origins of what arrives at `node`; empty, and not known, if nothing does.

        Data that a node's own output feeds back to it (compositions may form a cycle) does not
        count.
        """
        visited = {node}
        path: list[tuple[Node, Iterator[Node]]] = [(node, self._list_sources(node))]
        while path:
            last, sources = path[-1]
            upstream = next((source for source in sources if source not in visited), None)
            if upstream is None:
                path.pop()
                if last not in self._mixes:
                    self._mixes[last] = self._mix(last)
            elif upstream not in self._mixes:
                visited.add(upstream)
                path.append((upstream, self._list_sources(upstream)))
        return self._mixes[node]

    def _list_sources(self, node: Node) -> Iterator[Node]:
        return (source for source, _ in self._inputs[node])

    def _mix(self, node: Node) -> Mix:
        parts = [(Mix({origin: 1.0}, True), rate) for origin, rate in self._entries[node]]
        parts += [
            (self._mixes[source], rate)
            for source, rate in self._inputs[node]
            if source in self._mixes
        ]
        origins = {origin for mix, _ in parts for origin in mix.shares}
        is_complete = all(mix.is_known for mix, _ in parts)
        if len(origins) == 1 and is_complete:  # whatever the rates are
            return Mix(dict.fromkeys(origins, 1.0), True)
        sums = dict.fromkeys(origins, 0.0)
        for mix, rate in parts:
            for origin, share in mix.shares.items():
                sums[origin] += (rate or 0.0) * share
        total = sum(sums.values())
        is_known = is_complete and total > 0 and all(rate is not None for _, rate in parts)
        return Mix({each: part / total if total else 0.0 for each, part in sums.items()}, is_known)


def sum_by_edge(mix: Mix, edges: Collection[str]) -> dict[str | None, float]:
    """The share of each edge, and of all sites that are none (None). What jobs without input
    produce is in neither: it arises wherever they are."""
    shares: dict[str | None, float] = {}
    for origin, share in mix.shares.items():
        if origin.kind == "site":
            edge = origin.name if origin.name in edges else None
            shares[edge] = shares.get(edge, 0.0) + share
    return shares
