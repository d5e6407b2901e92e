"""The published numbers, and our exact answer beside all answers."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import pytest

from policies.rolbts import (
    Assignment,
    Objective,
    Server,
    Service,
    Tie,
    assign_as_published,
    count_assignments,
)
from policies.rolbts_exact import assign_exactly
from speck.errors import PermanentError

SERVERS = [Server(f"server-{n}", cores=14, overclock=4) for n in (1, 2, 3)]
ARRIVALS = (2, 1, 3, 5, 6, 4, 7)


def rounded(values: tuple[float, ...]) -> list[float]:
    return [round(value, 2) for value in values]


def test_figures_7_and_8_come_out_with_ties_to_the_last() -> None:
    assignment = assign_as_published(SERVERS, ARRIVALS, tie="last")
    assert rounded(assignment.nodes) == [16.07, 16.07, 17.86]
    assert rounded(assignment.links) == [30.36, 26.79, 23.21]
    assert round(assignment.sd_nodes, 2) == 1.03
    assert round(assignment.sd_links, 2) == 3.57


@pytest.mark.parametrize(
    ("objective", "tie", "used", "pairs"),
    [
        ("nodes", "first", (10, 9, 9), (17, 15, 13)),
        ("nodes", "last", (9, 9, 10), (13, 15, 17)),
        ("both", "first", (9, 10, 9), (16, 14, 15)),
        ("both", "last", (9, 10, 9), (15, 14, 16)),
        ("joint", "first", (8, 8, 12), (8, 9, 13)),
        ("joint", "last", (12, 8, 8), (13, 9, 8)),
    ],
)
def test_with_links_in_the_objective_as_in_equation_4(
    objective: Objective, tie: Tie, used: tuple[int, ...], pairs: tuple[int, ...]
) -> None:
    assignment = assign_as_published(SERVERS, ARRIVALS, tie=tie, objective=objective)
    assert assignment.used == used
    assert tuple(assignment.pairs.values()) == pairs


def test_assignments_without_memory_are_dropped() -> None:
    """Equation 5: the rates of a server's branches are at most its memory."""
    service = Service((3.0, 2.0, 1.0))
    servers = [Server("a", 4, memory=3.0), Server("b", 4, memory=3.0)]
    (place,) = assign_as_published(servers, [service]).places
    assert sorted((place[1], place[2])) == [1 - place[0]] * 2
    with pytest.raises(PermanentError, match="8 slots are free on 2 servers, limited by memory"):
        assign_as_published([Server("a", 4, memory=2.0), servers[1]], [service])


def test_assignments_without_bandwidth_are_dropped() -> None:
    """Equation 6. Four branches, two at each server, load the link with four pairs."""
    servers = [Server("a", 4), Server("b", 4)]
    assert assign_as_published(servers, (4,)).used == (2, 2)
    assert sorted(assign_as_published(servers, (4,), link_capacity=3).used) == [1, 3]
    assert sorted(assign_as_published(servers, (4,), link_capacity=2).used) == [0, 4]
    small = [Server("a", 3), Server("b", 3)]
    with pytest.raises(
        PermanentError, match="6 slots are free on 2 servers, limited by links of 2"
    ):
        assign_as_published(small, (4,), link_capacity=2)


def test_rates_of_branches_and_exchanges_decide() -> None:
    """One branch works as much as the other two; the two that talk much stay together."""
    servers = [Server("a", 8), Server("b", 8)]
    heavy = Service((4.0, 2.0, 2.0))
    (place,) = assign_as_published(servers, [heavy]).places
    assert place == (0, 1, 1)
    talks = Service((1.0,) * 4, {(0, 3): 9.0, (1, 2): 9.0, (0, 1): 0.0})
    (place,) = assign_as_published(servers, [talks], link_capacity=4).places
    assert (place[0] == place[3], place[1] == place[2], place[0] != place[1]) == (True,) * 3


def test_fsace_as_published() -> None:
    """Whole services, 17, 4 and 7 branches: of which the paper gives the sums only."""
    rows = [(size, 0, 0) for size in (2, 1, 3, 5, 6)] + [(0, 4, 0), (0, 0, 7)]
    assignment = Assignment(tuple(SERVERS), tuple(rows))
    assert rounded(assignment.nodes) == [30.36, 7.14, 12.50]
    assert round(assignment.sd_nodes, 2) == 12.16
    assert assignment.links == (0, 0, 0)


def test_ours_is_as_even_and_leaves_the_links_idle() -> None:
    assignment = assign_exactly(SERVERS, ARRIVALS)
    assert round(assignment.sd_nodes, 2) == 1.03
    assert assignment.links == (0, 0, 0)
    assert assignment.optimal


def test_what_is_enumerated_is_counted() -> None:
    """Figures 5 and 6."""
    assert assign_as_published(SERVERS, (4,)).tried == count_assignments(3, 4) == 81
    assert assign_as_published(SERVERS, ARRIVALS).tried == sum(3**branches for branches in ARRIVALS)
    assert count_assignments(10, 10) == 10**10


def test_what_cannot_be_enumerated_is_refused_and_solved_by_the_exact_one() -> None:
    servers = [Server(f"s{n}", cores=14, overclock=4) for n in range(10)]
    with pytest.raises(PermanentError, match=r"10\^10 = 10000000000 assignments.*rolbts-exact"):
        assign_as_published(servers, (10,))
    assert assign_exactly(servers, (10,)).used == (1,) * 10


@pytest.mark.parametrize("solve", [assign_as_published, assign_exactly])
def test_what_does_not_fit_is_refused(solve: object) -> None:
    with pytest.raises(PermanentError, match=r"cannot place .* branches: 2 slots are free on 2"):
        solve([Server("a", 1), Server("b", 2, used=1)], (3,))  # type: ignore[operator]


def brute_force(servers: list[Server], services: list[int]) -> tuple[Fraction, int]:
    """The least variance (times N), and the fewest pairs apart with it."""
    best: tuple[Fraction, int] | None = None
    for whole in product(range(len(servers)), repeat=sum(services)):
        branches_left, rows = list(whole), []
        for size in services:
            tally = Counter(branches_left[:size])
            branches_left = branches_left[size:]
            rows.append([tally[n] for n in range(len(servers))])
        slots_used = [server.used + sum(row[n] for row in rows) for n, server in enumerate(servers)]
        if any(share > server.slots for share, server in zip(slots_used, servers, strict=True)):
            continue
        shares = [Fraction(x, server.slots) for x, server in zip(slots_used, servers, strict=True)]
        mean = sum(shares, Fraction(0)) / len(shares)
        variance = sum(((share - mean) ** 2 for share in shares), Fraction(0))
        apart = sum(row[a] * row[b] for row in rows for a, b in combinations(range(len(row)), 2))
        if best is None or (variance, apart) < best:
            best = (variance, apart)
    assert best is not None
    return best


def test_the_exact_one_equals_brute_force() -> None:
    chance = random.Random(1)
    for _ in range(15):
        servers = [
            Server(f"s{n}", chance.choice([3, 4, 6]), chance.choice([1, 2]), chance.randint(0, 2))
            for n in range(chance.randint(2, 3))
        ]
        services = [chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
        while sum(services) > sum(server.slots - server.used for server in servers):
            services.pop()
        variance, apart = brute_force(servers, services)
        assignment = assign_exactly(servers, services)
        shares = [Fraction(x, s.slots) for x, s in zip(assignment.used, servers, strict=True)]
        mean = sum(shares, Fraction(0)) / len(shares)
        assert sum(((share - mean) ** 2 for share in shares), Fraction(0)) == variance
        assert sum(assignment.pairs.values()) == apart
        assert [sum(row) for row in assignment.counts] == services


@pytest.mark.parametrize("solve", [assign_as_published, assign_exactly])
def test_a_server_without_slots_is_refused(solve: object) -> None:
    with pytest.raises(PermanentError, match="cannot balance over b: it has no slots"):
        solve([Server("a", 1), Server("b", 0)], (1,))  # type: ignore[operator]
