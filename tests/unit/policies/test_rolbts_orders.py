"""What docs/placement.md says of all orders in which services of 1 to 7 branches may arrive.

The orders are tried in whole numbers: three servers and three links have 56 of the same unit each,
so that variances compare like those of slots and pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, permutations

import pytest

from policies.rolbts import Objective, Server, assign_as_published

SIZES = tuple(range(1, 8))
SERVERS = [Server(name, cores=14, overclock=4) for name in "abc"]
Row = tuple[int, int, int]
START: Row = (0, 0, 0)


def spread(values: Sequence[int]) -> int:
    """The variance, in whole numbers: for equally many values."""
    return len(values) * sum(value * value for value in values) - sum(values) ** 2


def rate(used: Row, pairs: Row, objective: Objective) -> int:
    if objective == "joint":
        return spread((*used, *pairs))
    return spread(used) + (spread(pairs) if objective == "both" else 0)


@cache
def add(used: Row, pairs: Row, size: int, objective: Objective) -> tuple[Row, Row]:
    """Slots and pairs (1-2, 1-3, 2-3) with the first of the best assignments of a service."""
    best: tuple[int, Row, Row] | None = None
    # the enumeration comes first to those with most branches at the first servers
    for a in range(size, -1, -1):
        for b in range(size - a, -1, -1):
            c = size - a - b
            slots = (used[0] + a, used[1] + b, used[2] + c)
            apart = (pairs[0] + a * b, pairs[1] + a * c, pairs[2] + b * c)
            value = rate(slots, apart, objective)
            if best is None or value < best[0]:
                best = (value, slots, apart)
    assert best is not None
    return best[1:]


def arrive(order: Sequence[int], objective: Objective) -> tuple[Row, Row]:
    used, pairs = START, START
    for size in order:
        used, pairs = add(used, pairs, size, objective)
    return used, pairs


def list_orders_with_published_shares() -> Iterator[tuple[int, ...]]:
    for order in permutations(SIZES):
        if arrive(order, "nodes") == ((10, 9, 9), (17, 15, 13)):
            yield order


@pytest.mark.parametrize("objective", ["nodes", "both", "joint"])
def test_whole_numbers_give_what_the_algorithm_gives(objective: Objective) -> None:
    chance = random.Random(3)
    for _ in range(5):
        order = chance.sample(SIZES, 5)
        assignment = assign_as_published(SERVERS, order, objective=objective)
        used, pairs = arrive(order, objective)
        assert (assignment.used, tuple(assignment.pairs.values())) == (used, pairs)


def test_462_orders_give_the_published_shares_and_78_of_them_the_prefixes_of_fsace() -> None:
    orders = list(list_orders_with_published_shares())
    assert len(orders) == 462
    # consecutive services of 17, 4 and 7 branches
    assert sum({17, 21} <= set(accumulate(order)) for order in orders) == 78
    assert (2, 1, 3, 5, 6, 4, 7) in orders


def test_with_links_in_the_objective_no_order_gives_the_published_links() -> None:
    for objective in ("both", "joint"):
        for order in permutations(SIZES):
            _, pairs = arrive(order, objective)  # type: ignore[arg-type]
            assert sorted(pairs) != [13, 15, 17]
