"""RoLBTS, resource-oriented load balancing: the published algorithm, and an exact one.

Services arrive one after another. Each has branches, and each branch occupies a slot of a server.
All branches of a service communicate, so each separated pair loads the link between its two
servers. `p_i = slots used / (cores x overclock)` is a server's occupancy; the objective is the
variance of the `p_i`.

`assign_as_published` enumerates all N^M assignments of a service's M branches to N servers, drops
those that do not fit, and takes the first with the least variance (`tie="first"`), as the algorithm
is written. This is a reconstruction: with `tie="last"` the paper's shares of servers (figure 7)
come out in their order and those of links (figure 8) reversed, with `tie="first"` vice versa. What
the paper calls variance is the sample standard deviation in percent. Left out are the links' half
of the paper's objective and its limits of memory and bandwidth, see docs/placement.md. Figures 5
and 6 can be reproduced by what they count, the assignments tried (`count_assignments`). Figure 4
cannot: the available text lacks the equations behind it.

`assign_exactly` solves the same objective over all services at once, and among all balanced
placements takes one with the fewest separated pairs, so that links stay idle.
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
"""Maximum that `assign_as_published` enumerates for one service: takes some seconds."""
MOST_SHAPES = 1000
"""Maximum number of equally even distributions of branches to try."""
MOST_STATES = 200_000
"""Maximum number of states to search for one distribution."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server with `cores` times `overclock` slots, of which `used` are occupied already."""

    name: str
    cores: int
    overclock: int = 1
    used: int = 0

    @property
    def slots(self) -> int:
        return self.cores * self.overclock


@dataclass(frozen=True, slots=True)
class Assignment:
    """`counts[service][server]`: number of branches of a service on a server.

    `tried`: number of assignments tried. `optimal`: no assignment is more even, and no equally even
    one separates fewer pairs.
    """

    servers: tuple[Server, ...]
    counts: tuple[tuple[int, ...], ...]
    tried: int = 0
    optimal: bool = False

    @property
    def used(self) -> tuple[int, ...]:
        """Used slots by server."""
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
        """By pair of servers: pairs of branches of one service that these two separate."""
        return {
            (a, b): sum(row[a] * row[b] for row in self.counts)
            for a, b in combinations(range(len(self.servers)), 2)
        }

    @property
    def links(self) -> tuple[float, ...]:
        """Occupancy of each link in percent of the smaller server's slots.

        With three servers in the paper's order: each link has the position of the server that it
        does not touch. Otherwise by pair.
        """
        shares = [
            100 * pairs / min(self.servers[a].slots, self.servers[b].slots)
            for (a, b), pairs in self.pairs.items()
        ]
        return tuple(reversed(shares)) if len(self.servers) == 3 else tuple(shares)

    @property
    def sd_nodes(self) -> float:
        """Sample standard deviation of `nodes`: what the paper calls their variance."""
        return _compute_deviation(self.nodes)

    @property
    def sd_links(self) -> float:
        """Sample standard deviation of `links`."""
        return _compute_deviation(self.links)


def _compute_deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def count_assignments(servers: int, branches: int) -> int:
    """Count the assignments that the published algorithm enumerates for one service: N^M."""
    return int(servers**branches)


def assign_as_published(
    servers: Sequence[Server], services: Sequence[int], *, tie: Tie = "first"
) -> Assignment:
    """Assign services (given by their numbers of branches) in the order of arrival, as published.

    Raises PermanentError if a service fits nowhere, or has too many assignments to enumerate
    (`assign_exactly` does not enumerate).
    """
    servers = _check_slots(servers)
    rows: list[tuple[int, ...]] = []
    used = [server.used for server in servers]
    tried = 0
    for branches in services:
        count = count_assignments(len(servers), branches)
        if count > MOST_ASSIGNMENTS:
            raise PermanentError(
                f"cannot enumerate {len(servers)}^{branches} = {count} assignments of a service "
                f"of {branches} branches: use rolbts-exact, which does not"
            )
        tried += count
        row = _find_best_row(servers, used, branches, tie)
        if row is None:
            raise PermanentError(
                f"cannot place a service of {branches} branches: "
                f"{_count_free_slots(servers, used)} slots are free on {len(servers)} servers"
            )
        rows.append(row)
        used = [before + more for before, more in zip(used, row, strict=True)]
    return Assignment(servers, tuple(rows), tried)


def _check_slots(servers: Sequence[Server]) -> tuple[Server, ...]:
    for server in servers:
        if server.slots <= 0:
            raise PermanentError(
                f"cannot balance over {server.name}: it has no slots; leave it out"
            )
    return tuple(servers)


def _count_free_slots(servers: Sequence[Server], used: Sequence[int]) -> int:
    return sum(server.slots - used_slots for server, used_slots in zip(servers, used, strict=True))


def _find_best_row(
    servers: tuple[Server, ...], used: list[int], branches: int, tie: Tie
) -> tuple[int, ...] | None:
    @cache
    def compute_variance(row: tuple[int, ...]) -> Fraction | None:
        after = [before + more for before, more in zip(used, row, strict=True)]
        if any(
            used_slots > server.slots for used_slots, server in zip(after, servers, strict=True)
        ):
            return None
        return _variance(
            [
                Fraction(used_slots, server.slots)
                for used_slots, server in zip(after, servers, strict=True)
            ]
        )

    best: Fraction | None = None
    chosen: tuple[int, ...] | None = None
    for assignment in product(range(len(servers)), repeat=branches):
        tally = Counter(assignment)
        row = tuple(tally[index] for index in range(len(servers)))
        row_variance = compute_variance(row)
        if row_variance is None:
            continue
        if best is None or row_variance < best or (row_variance == best and tie == "last"):
            best, chosen = row_variance, row
    return chosen


def _variance(shares: Sequence[Fraction]) -> Fraction:
    """N times the variance, which orders assignments alike."""
    total = sum(shares, Fraction(0))
    return sum((share * share for share in shares), Fraction(0)) - total * total / len(shares)


def assign_exactly(servers: Sequence[Server], services: Sequence[int]) -> Assignment:
    """Assign all services at once with the least variance, then with the fewest separated pairs.

    Dynamic programming over servers (state: branches placed, sum of shares; value: sum of squared
    shares) finds how many branches each server gets. A search that splits the largest service
    first finds which ones; it treats servers with equally many free slots as equal.
    Raises PermanentError if the services do not fit.
    """
    servers = _check_slots(servers)
    total = sum(services)
    if total > _count_free_slots(servers, [server.used for server in servers]):
        raise PermanentError(
            f"cannot place services of {total} branches: "
            f"{_count_free_slots(servers, [server.used for server in servers])} slots are free on "
            f"{len(servers)} servers"
        )
    packing = _Packing(services)
    best: tuple[int, tuple[tuple[int, ...], ...]] | None = None
    shapes: set[tuple[int, ...]] = set()
    is_complete = True
    for row in _list_even_rows(servers, total):
        shape = tuple(sorted(row))
        if shape in shapes:
            continue  # which server has which share does not matter for separated pairs
        if len(shapes) >= MOST_SHAPES:
            is_complete = False
            break
        shapes.add(shape)
        apart, counts = packing.solve(row)
        if best is None or apart < best[0]:
            best = (apart, counts)
        if apart == 0:
            break
    if best is None:
        raise PermanentError("cannot place services on no servers")
    return Assignment(servers, best[1], packing.tried, is_complete and packing.is_complete)


def _list_even_rows(servers: tuple[Server, ...], total: int) -> Iterator[tuple[int, ...]]:
    """All distributions of `total` branches with the least variance of the servers' shares."""
    unit = math.lcm(*(server.slots for server in servers))
    size = len(servers)
    spread_bound = _bound_spread(servers, total, unit)
    layers: list[dict[tuple[int, int], int]] = [{(0, 0): 0}]
    for number, server in enumerate(servers, 1):
        layer: dict[tuple[int, int], int] = {}
        for (placed, shares), squares in layers[-1].items():
            for added in range(min(server.slots - server.used, total - placed) + 1):
                share = (server.used + added) * unit // server.slots
                key, value = (placed + added, shares + share), squares + share * share
                # the spread of the first servers is a lower bound on that of all servers
                if size * (number * value - key[1] ** 2) > number * spread_bound:
                    continue
                if value < layer.get(key, value + 1):
                    layer[key] = value
        layers.append(layer)
    spreads = {
        key: size * value - key[1] ** 2 for key, value in layers[-1].items() if key[0] == total
    }
    least = min(spreads.values(), default=None)
    for key, value in spreads.items():
        if value == least:
            yield from _trace_back(servers, layers, unit, key)


def _bound_spread(servers: tuple[Server, ...], total: int, unit: int) -> int:
    """Upper bound on N sum p^2 - (sum p)^2, in units: each branch goes to the emptiest server."""
    used = [server.used for server in servers]
    for _ in range(total):
        free = [i for i, server in enumerate(servers) if used[i] < server.slots]
        used[min(free, key=lambda i: Fraction(used[i] + 1, servers[i].slots))] += 1
    shares = [
        used_slots * unit // server.slots for used_slots, server in zip(used, servers, strict=True)
    ]
    return len(shares) * sum(share * share for share in shares) - sum(shares) ** 2


def _trace_back(
    servers: tuple[Server, ...],
    layers: list[dict[tuple[int, int], int]],
    unit: int,
    key: tuple[int, int],
) -> Iterator[tuple[int, ...]]:
    """All distributions that lead to a state at its least value, traced back from it."""
    depth = len(layers) - 1
    if depth == 0:
        yield ()
        return
    server, value = servers[depth - 1], layers[depth][key]
    for added in range(min(server.slots - server.used, key[0]) + 1):
        share = (server.used + added) * unit // server.slots
        previous_key = (key[0] - added, key[1] - share)
        if layers[depth - 1].get(previous_key) == value - share * share:
            for rest in _trace_back(servers[:-1], layers[:-1], unit, previous_key):
                yield (*rest, added)


class _Packing:
    """Splits services over a given distribution with the fewest separated pairs."""

    def __init__(self, services: Sequence[int]):
        self.services = services
        self.largest_first = sorted(range(len(services)), key=lambda index: -services[index])
        self.tried = 0
        self.is_complete = True

    def solve(self, row: tuple[int, ...]) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """Separated pairs, and `counts[service][server]`; `row` sums up to all branches."""
        self._states = 0
        self._lowest_costs: dict[tuple[int, tuple[int, ...]], int] = {}
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
        """Search depth first, best splits first, and prune what cannot be better."""
        if self._best is not None and apart + self._bound_cost(depth, free) >= self._best[0]:
            return
        if depth == len(self.services):
            self._best = (apart, [list(line) for line in lines])
            return
        state = (depth, tuple(sorted(free)))
        if self._lowest_costs.get(state, apart + 1) <= apart:
            return
        self._lowest_costs[state] = apart
        self._states += 1
        self.tried += 1
        if self._states > MOST_STATES and self._best is not None:
            self.is_complete = False
            return
        size = self.services[self.largest_first[depth]]
        for parts in _list_splits(size, free):
            cost = _count_pairs_apart(size, parts)
            free_after = [slots - part for slots, part in zip(free, parts, strict=True)]
            self._search(depth + 1, free_after, apart + cost, [*lines, parts])
            if self._best is not None and self._best[0] <= apart + cost:
                # later splits of this service alone cost at least as much
                return

    def _bound_cost(self, depth: int, free: list[int]) -> int:
        """Lower bound on the cost of the remaining services: each as if it were alone."""
        sizes = sorted(free, reverse=True)
        total = 0
        for index in self.largest_first[depth:]:
            size = self.services[index]
            if size > sizes[0]:
                rest, parts = size, []
                for slots in sizes:
                    parts.append(min(rest, slots))
                    rest -= parts[-1]
                total += _count_pairs_apart(size, parts)
        return total


def _count_pairs_apart(size: int, parts: Sequence[int]) -> int:
    return (size * size - sum(part * part for part in parts)) // 2


def _list_splits(size: int, free: Sequence[int]) -> Iterator[list[int]]:
    """Distinct ways to split a service over the free slots, fewest separated pairs first."""
    order = sorted(range(len(free)), key=lambda index: -free[index])
    splits = _list_parts(size, [free[index] for index in order], 0, size)
    for parts in sorted(splits, key=lambda parts: (_count_pairs_apart(size, parts), parts)):
        split = [0] * len(free)
        for index, part in zip(order, parts, strict=True):
            split[index] = part
        yield split


def _list_parts(
    size: int, free: Sequence[int], index: int, before: int
) -> Iterator[tuple[int, ...]]:
    """Parts for `free[index:]`, which descends; parts of equal servers descend too."""
    if index == len(free):
        if size == 0:
            yield ()
        return
    alike = index > 0 and free[index] == free[index - 1]
    largest = min(size, free[index], before if alike else size)
    for part in range(largest, max(0, size - sum(free[index + 1 :])) - 1, -1):
        for others in _list_parts(size - part, free, index + 1, part):
            yield (part, *others)
