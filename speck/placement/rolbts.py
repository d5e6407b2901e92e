"""RoLBTS, resource-oriented load balancing: the algorithm as published, and its objective solved.

Services arrive one after the other; each has branches, each branch takes a slot of a server. All
branches of a service talk to each other, so each pair that is apart loads the link between its two
servers. `p_i = slots used / (cores x overclock)` is a server's occupancy, and what is minimised is
the variance of the `p_i`.

`published` enumerates all N^M assignments of a service's M branches to N servers, drops those that
do not fit, and takes the first with the least variance (`tie="first"`), as the algorithm is
written. Reconstructed: with `tie="last"` the paper's shares of servers (figure 7) come out in their
order and those of links (figure 8) reversed, with `tie="first"` the other way round; "variance"
there is the sample standard deviation in percent. Left out: the links' half of the paper's
objective and its limits of memory and bandwidth, see docs/placement.md. Figures 5 and 6 can be
repeated by what they count, the assignments tried (`assignments`); figure 4 cannot be recovered:
the equations that it rests on are missing in the text at hand.

`exact` solves the same objective over all services at once, and among all balanced placements
takes one with the fewest pairs apart, so that links stay idle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Literal

from speck.errors import PermanentError

Tie = Literal["first", "last"]
MOST_ASSIGNMENTS = 3_000_000
"""What `published` enumerates for one service at most: some seconds."""
MOST_SHAPES = 1000
"""Equally even ways to give out branches that are looked at."""
MOST_STATES = 200_000
"""States of the split of services that are looked at for one of them."""


@dataclass(frozen=True, slots=True)
class Server:
    """`cores` times `overclock` slots, of which `used` are taken already."""

    name: str
    cores: int
    overclock: int = 1
    used: int = 0

    @property
    def slots(self) -> int:
        return self.cores * self.overclock


@dataclass(frozen=True, slots=True)
class Assignment:
    """`counts[service][server]`: how many branches of a service a server has.

    `tried`: assignments that were looked at. `optimal`: nothing is more even, and of what is as
    even nothing has fewer pairs apart.
    """

    servers: tuple[Server, ...]
    counts: tuple[tuple[int, ...], ...]
    tried: int = 0
    optimal: bool = False

    @property
    def used(self) -> tuple[int, ...]:
        """Slots taken, by server."""
        return tuple(
            server.used + sum(row[index] for row in self.counts)
            for index, server in enumerate(self.servers)
        )

    @property
    def nodes(self) -> tuple[float, ...]:
        """Occupancy of each server in percent."""
        return tuple(
            100 * used / server.slots for used, server in zip(self.used, self.servers, strict=True)
        )

    @property
    def pairs(self) -> dict[tuple[int, int], int]:
        """By pair of servers: pairs of branches of one service that are apart on the two."""
        return {
            (a, b): sum(row[a] * row[b] for row in self.counts)
            for a, b in combinations(range(len(self.servers)), 2)
        }

    @property
    def links(self) -> tuple[float, ...]:
        """Occupancy of each link in percent of the smaller server's slots.

        In the paper's order where there are three servers: each link where the server stands that
        it does not touch. Else by pair.
        """
        found = [
            100 * pairs / min(self.servers[a].slots, self.servers[b].slots)
            for (a, b), pairs in self.pairs.items()
        ]
        return tuple(reversed(found)) if len(self.servers) == 3 else tuple(found)

    @property
    def sd_nodes(self) -> float:
        """Sample standard deviation of `nodes`: what the paper calls their variance."""
        return _deviation(self.nodes)

    @property
    def sd_links(self) -> float:
        """Sample standard deviation of `links`."""
        return _deviation(self.links)


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def assignments(servers: int, branches: int) -> int:
    """How many assignments the published algorithm enumerates for one service: N^M."""
    return int(servers**branches)


def published(
    servers: Sequence[Server], services: Sequence[int], *, tie: Tie = "first"
) -> Assignment:
    """Place services of so many branches each, in the order of their arrival, as published.

    Raises PermanentError when a service fits nowhere, or has more assignments than can be
    enumerated (`exact` does not enumerate).
    """
    servers = _with_slots(servers)
    rows: list[tuple[int, ...]] = []
    used = [server.used for server in servers]
    tried = 0
    for branches in services:
        count = assignments(len(servers), branches)
        if count > MOST_ASSIGNMENTS:
            raise PermanentError(
                f"cannot enumerate {len(servers)}^{branches} = {count} assignments of a service "
                f"of {branches} branches: use rolbts-exact, which does not"
            )
        tried += count
        row = _best_row(servers, used, branches, tie)
        if row is None:
            raise PermanentError(
                f"cannot place a service of {branches} branches: {_room(servers, used)} slots "
                f"are free on {len(servers)} servers"
            )
        rows.append(row)
        used = [before + more for before, more in zip(used, row, strict=True)]
    return Assignment(servers, tuple(rows), tried)


def _with_slots(servers: Sequence[Server]) -> tuple[Server, ...]:
    for server in servers:
        if server.slots <= 0:
            raise PermanentError(
                f"cannot balance over {server.name}: it has no slots; leave it out"
            )
    return tuple(servers)


def _room(servers: Sequence[Server], used: Sequence[int]) -> int:
    return sum(server.slots - taken for server, taken in zip(servers, used, strict=True))


def _best_row(
    servers: tuple[Server, ...], used: list[int], branches: int, tie: Tie
) -> tuple[int, ...] | None:
    @cache
    def variance(row: tuple[int, ...]) -> Fraction | None:
        after = [before + more for before, more in zip(used, row, strict=True)]
        if any(taken > server.slots for taken, server in zip(after, servers, strict=True)):
            return None
        return _variance(
            [Fraction(taken, server.slots) for taken, server in zip(after, servers, strict=True)]
        )

    best: Fraction | None = None
    chosen: tuple[int, ...] | None = None
    for assignment in product(range(len(servers)), repeat=branches):
        tally = Counter(assignment)
        row = tuple(tally[index] for index in range(len(servers)))
        found = variance(row)
        if found is None:
            continue
        if best is None or found < best or (found == best and tie == "last"):
            best, chosen = found, row
    return chosen


def _variance(shares: Sequence[Fraction]) -> Fraction:
    """Times N: the same order."""
    total = sum(shares, Fraction(0))
    return sum((share * share for share in shares), Fraction(0)) - total * total / len(shares)


def exact(servers: Sequence[Server], services: Sequence[int]) -> Assignment:
    """The least variance over all services at once, then the fewest pairs apart.

    How many branches each server gets is found by dynamic programming over servers (state:
    branches given out, sum of shares; value: sum of their squares), which of them by splitting
    the largest service first, servers with equally many slots left being taken for one.
    Raises PermanentError when the services do not fit.
    """
    servers = _with_slots(servers)
    total = sum(services)
    if total > _room(servers, [server.used for server in servers]):
        raise PermanentError(
            f"cannot place services of {total} branches: "
            f"{_room(servers, [server.used for server in servers])} slots are free on "
            f"{len(servers)} servers"
        )
    packing = _Packing(services)
    best: tuple[int, tuple[tuple[int, ...], ...]] | None = None
    seen: set[tuple[int, ...]] = set()
    whole = True
    for row in _even(servers, total):
        shape = tuple(sorted(row))
        if shape in seen:
            continue  # which server has how much makes no difference to what is apart
        if len(seen) >= MOST_SHAPES:
            whole = False
            break
        seen.add(shape)
        apart, counts = packing.solve(row)
        if best is None or apart < best[0]:
            best = (apart, counts)
        if apart == 0:
            break
    if best is None:
        raise PermanentError("cannot place services on no servers")
    return Assignment(servers, best[1], packing.tried, whole and packing.whole)


def _even(servers: tuple[Server, ...], total: int) -> Iterator[tuple[int, ...]]:
    """All ways to give `total` branches to servers with the least variance of their shares."""
    unit = math.lcm(*(server.slots for server in servers))
    size = len(servers)
    most = _some_spread(servers, total, unit)
    layers: list[dict[tuple[int, int], int]] = [{(0, 0): 0}]
    for number, server in enumerate(servers, 1):
        layer: dict[tuple[int, int], int] = {}
        for (given, shares), squares in layers[-1].items():
            for more in range(min(server.slots - server.used, total - given) + 1):
                share = (server.used + more) * unit // server.slots
                key, value = (given + more, shares + share), squares + share * share
                # the spread of the first servers is a lower bound of that of all
                if size * (number * value - key[1] ** 2) > number * most:
                    continue
                if value < layer.get(key, value + 1):
                    layer[key] = value
        layers.append(layer)
    ends = {key: size * value - key[1] ** 2 for key, value in layers[-1].items() if key[0] == total}
    least = min(ends.values(), default=None)
    for key, value in ends.items():
        if value == least:
            yield from _backwards(servers, layers, unit, key)


def _some_spread(servers: tuple[Server, ...], total: int, unit: int) -> int:
    """N sum p^2 - (sum p)^2, in units, when each branch goes where most is left: not yet best."""
    used = [server.used for server in servers]
    for _ in range(total):
        free = [i for i, server in enumerate(servers) if used[i] < server.slots]
        used[min(free, key=lambda i: Fraction(used[i] + 1, servers[i].slots))] += 1
    shares = [taken * unit // server.slots for taken, server in zip(used, servers, strict=True)]
    return len(shares) * sum(share * share for share in shares) - sum(shares) ** 2


def _backwards(
    servers: tuple[Server, ...],
    layers: list[dict[tuple[int, int], int]],
    unit: int,
    key: tuple[int, int],
) -> Iterator[tuple[int, ...]]:
    """The ways that lead to a state at its least value, by going back from it."""
    depth = len(layers) - 1
    if depth == 0:
        yield ()
        return
    server, value = servers[depth - 1], layers[depth][key]
    for more in range(min(server.slots - server.used, key[0]) + 1):
        share = (server.used + more) * unit // server.slots
        before = (key[0] - more, key[1] - share)
        if layers[depth - 1].get(before) == value - share * share:
            for rest in _backwards(servers[:-1], layers[:-1], unit, before):
                yield (*rest, more)


class _Packing:
    """Splits services over what each server is to have, with the fewest pairs apart."""

    def __init__(self, services: Sequence[int]):
        self.services = services
        self.largest_first = sorted(range(len(services)), key=lambda index: -services[index])
        self.tried = 0
        self.whole = True

    def solve(self, row: tuple[int, ...]) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """Pairs apart, and `counts[service][server]`; `row` sums up to all branches."""
        self._states = 0
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        order = sorted(range(len(row)), key=lambda index: -row[index])
        free = tuple(row[index] for index in order)
        self._best: tuple[int, list[list[int]]] | None = None
        self._search(0, list(free), 0, [])
        assert self._best is not None  # any split that fills every server is an answer
        counts = [[0] * len(row) for _ in self.services]
        for service, parts in zip(self.largest_first, self._best[1], strict=True):
            for position, part in enumerate(parts):
                counts[service][order[position]] = part
        return self._best[0], tuple(tuple(line) for line in counts)

    def _search(self, depth: int, free: list[int], apart: int, lines: list[list[int]]) -> None:
        """Depth first, what keeps most together first; nothing that cannot be better."""
        if self._best is not None and apart + self._least(depth, free) >= self._best[0]:
            return
        if depth == len(self.services):
            self._best = (apart, [list(line) for line in lines])
            return
        state = (depth, tuple(sorted(free)))
        if self._known.get(state, apart + 1) <= apart:
            return
        self._known[state] = apart
        self._states += 1
        self.tried += 1
        if self._states > MOST_STATES and self._best is not None:
            self.whole = False
            return
        size = self.services[self.largest_first[depth]]
        for parts in _splits(size, free):
            cost = _apart(size, parts)
            left = [have - part for have, part in zip(free, parts, strict=True)]
            self._search(depth + 1, left, apart + cost, [*lines, parts])
            if self._best is not None and self._best[0] <= apart + cost:
                # later splits of this service cost as much by themselves
                return

    def _least(self, depth: int, free: list[int]) -> int:
        """What each remaining service costs at least, were it alone."""
        sizes = sorted(free, reverse=True)
        total = 0
        for index in self.largest_first[depth:]:
            size = self.services[index]
            if size > sizes[0]:
                left, parts = size, []
                for have in sizes:
                    parts.append(min(left, have))
                    left -= parts[-1]
                total += _apart(size, parts)
        return total


def _apart(size: int, parts: Sequence[int]) -> int:
    return (size * size - sum(part * part for part in parts)) // 2


def _splits(size: int, free: Sequence[int]) -> Iterator[list[int]]:
    """Ways to split a service over what is free, the least apart first, no two alike."""
    order = sorted(range(len(free)), key=lambda index: -free[index])
    found = _compositions(size, [free[index] for index in order], 0, size)
    for parts in sorted(found, key=lambda parts: (_apart(size, parts), parts)):
        split = [0] * len(free)
        for index, part in zip(order, parts, strict=True):
            split[index] = part
        yield split


def _compositions(
    size: int, free: Sequence[int], index: int, before: int
) -> Iterator[tuple[int, ...]]:
    """Parts for `free[index:]`, which falls; for servers with as much left they fall too."""
    if index == len(free):
        if size == 0:
            yield ()
        return
    alike = index > 0 and free[index] == free[index - 1]
    most = min(size, free[index], before if alike else size)
    for part in range(most, max(0, size - sum(free[index + 1 :])) - 1, -1):
        for others in _compositions(size - part, free, index + 1, part):
            yield (part, *others)
