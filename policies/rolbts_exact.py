"""RoLBTS's objective over all services at once, exactly, with the fewest separated pairs.

`assign_exactly` minimises the variance of the servers' occupancy, as `policies.rolbts`
does service by service. Among all balanced placements it takes one with the fewest separated pairs,
so that links stay idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from policies.rolbts import Assignment, Server, check_slots, count_free_slots
from speck.errors import PermanentError

MOST_SHAPES = 1000
"""Maximum number of equally even distributions of branches to try."""
MOST_STATES = 200_000
"""Maximum number of states to search for one distribution."""


def assign_exactly(servers: Sequence[Server], services: Sequence[int]) -> Assignment:
    """Assign all services at once with the least variance, then with the fewest separated pairs.

    Dynamic programming over servers (state: branches placed, sum of shares; value: sum of squared
    shares) finds how many branches each server gets. A search that splits the largest service
    first finds which ones; it treats servers with equally many free slots as equal.
    Raises PermanentError if the services do not fit.
    """
    servers = check_slots(servers)
    total = sum(services)
    if total > count_free_slots(servers, [server.used for server in servers]):
        raise PermanentError(
            f"cannot place services of {total} branches: "
            f"{count_free_slots(servers, [server.used for server in servers])} slots are free on "
            f"{len(servers)} servers"
        )
    packing = _Packing(services)
    best: tuple[int, tuple[tuple[int, ...], ...]] | None = None
    shapes: set[tuple[int, ...]] = set()
    is_complete = True
    unit = math.lcm(*(server.slots for server in servers))
    layers = _balance(servers, total, unit)
    for row in _list_even_rows(servers, layers, total, unit):
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
    tried = sum(map(len, layers)) + packing.tried
    return Assignment(servers, best[1], tried, is_complete and packing.is_complete)


_Layer = dict[tuple[int, int], int]
"""(branches placed, sum of shares) -> the least sum of squared shares."""


def _balance(servers: tuple[Server, ...], total: int, unit: int) -> list[_Layer]:
    """The states after no server, the first, the first two, and so on; shares in `1 / unit`."""
    size = len(servers)
    spread_bound = _bound_spread(servers, total, unit)
    layers: list[_Layer] = [{(0, 0): 0}]
    for number, server in enumerate(servers, 1):
        layer: _Layer = {}
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
    return layers


def _list_even_rows(
    servers: tuple[Server, ...], layers: list[_Layer], total: int, unit: int
) -> Iterator[tuple[int, ...]]:
    """All distributions of `total` branches with the least variance of the servers' shares."""
    size = len(servers)
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
    layers: list[_Layer],
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
