"""RoLBTS, resource-oriented load balancing of task slots, by its published equations.

Services arrive one after another. Each has branches, and each branch takes a slot of a server. The
branches of a service communicate, so each separated pair loads the link between its two servers.
In the paper's notation: `G_a(i,i)` is the memory of a server, `G_a(i,j)` the bandwidth of a link,
`G_r(k,k)` the processing rate of a branch, `G_r(k,l)` the rate between two branches, and `a(i,k)`
is 1 if branch `k` is at server `i`.

- (1) occupancy of a server: `p_i = sum_k a(i,k) G_r(k,k) / (cores x overclock)`
- (2) occupancy of a link: `p_ij = sum_kl a(i,k) a(j,l) G_r(k,l) / G_a(i,j)`
- (4) objective: the least variance of the occupancies of servers and links
- (5) `sum_k a(i,k) G_r(k,k) <= G_a(i,i)`
- (6) `sum_kl a(i,k) a(j,l) G_r(k,l) <= G_a(i,j)`

Equations 1 and 2 are reconstructed: the available text lacks its formulas. `assign_as_published`
enumerates all N^M assignments of a service's M branches to N servers, drops those without enough
slots, memory (5) or bandwidth (6), and takes the first of the best (`tie="first"`), as algorithm 1
is written. Figures 7 and 8 of the paper follow from the variance of servers alone
(`objective="nodes"`), against equation 4; see docs/placement.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from typing import Literal

from speck.errors import PermanentError

Tie = Literal["first", "last"]
Objective = Literal["nodes", "both", "joint"]
"""What has the least variance: the servers' occupancies (`nodes`), those of servers plus those of
links (`both`), or all together (`joint`)."""
MOST_ASSIGNMENTS = 3_000_000
"""Maximum that `assign_as_published` enumerates for one service: takes minutes if branches differ.
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server with `cores` times `overclock` slots, of which `used` are occupied already.

    `memory`: G_a(i,i), in the unit of the branches' rates; None: no limit.
    """

    name: str
    cores: int
    overclock: int = 1
    used: int = 0
    memory: float | None = None

    @property
    def slots(self) -> int:
        return self.cores * self.overclock


@dataclass(frozen=True, slots=True)
class Service:
    """A service: the processing `rates` G_r(k,k) of its branches, and the rates of `exchange`
    G_r(k,l) between two of them (k < l); pairs that are not named exchange at a rate of 1."""

    rates: tuple[float, ...]
    exchange: Mapping[tuple[int, int], float] | None = None

    @property
    def branches(self) -> int:
        return len(self.rates)

    @property
    def is_uniform(self) -> bool:
        """Whether all branches are alike, so that only their number at each server matters."""
        return not self.exchange and len(set(self.rates)) <= 1

    def exchange_of(self, k: int, m: int) -> float:
        return 1.0 if self.exchange is None else self.exchange.get((k, m), 1.0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """`counts[service][server]`: number of branches of a service on a server.

    `places[service][branch]`: the branch's server, where it was chosen branch by branch. `tried`:
    number of assignments enumerated, or of states searched by `assign_exactly`. `optimal`: no
    assignment is more even, and no equally even one separates fewer pairs.
    """

    servers: tuple[Server, ...]
    counts: tuple[tuple[int, ...], ...]
    tried: int = 0
    optimal: bool = False
    places: tuple[tuple[int, ...], ...] = ()

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
    servers: Sequence[Server],
    services: Sequence[int | Service],
    *,
    tie: Tie = "first",
    objective: Objective = "nodes",
    link_capacity: float | None = None,
) -> Assignment:
    """Assign services in the order of arrival, as published.

    A service that is a number has so many branches of rate 1, and each pair exchanges at a rate of
    1. `link_capacity`: G_a(i,j) of each link; without it links have no limit, and their occupancy
    is in relation to the smaller server's slots.

    Raises PermanentError if a service fits nowhere, or has too many assignments to enumerate
    (`assign_exactly` does not enumerate).
    """
    servers = check_slots(servers)
    state = _State(servers, objective, link_capacity)
    rows: list[tuple[int, ...]] = []
    places: list[tuple[int, ...]] = []
    tried = 0
    for each in services:
        service = each if isinstance(each, Service) else Service((1.0,) * each)
        count = count_assignments(len(servers), service.branches)
        if count > MOST_ASSIGNMENTS:
            raise PermanentError(
                f"cannot enumerate {len(servers)}^{service.branches} = {count} assignments of a "
                f"service of {service.branches} branches: use rolbts-exact, which does not"
            )
        tried += count
        chosen = state.choose(service, tie)
        if chosen is None:
            raise PermanentError(
                f"cannot place a service of {service.branches} branches: "
                f"{count_free_slots(servers, state.slots)} slots are free on {len(servers)} servers"
                f"{state.describe_limits()}"
            )
        state.add(service, chosen)
        rows.append(tuple(chosen.count(index) for index in range(len(servers))))
        places.append(chosen)
    return Assignment(servers, tuple(rows), tried, places=tuple(places))


def check_slots(servers: Sequence[Server]) -> tuple[Server, ...]:
    """The servers. Raises PermanentError if one has no slots."""
    for server in servers:
        if server.slots <= 0:
            raise PermanentError(
                f"cannot balance over {server.name}: it has no slots; leave it out"
            )
    return tuple(servers)


def count_free_slots(servers: Sequence[Server], used: Sequence[int]) -> int:
    """Slots that are free on all servers together, with so many used on each."""
    return sum(server.slots - used_slots for server, used_slots in zip(servers, used, strict=True))


class _State:
    """What the services placed so far use: slots and rates by server, exchange by link."""

    def __init__(
        self, servers: tuple[Server, ...], objective: Objective, link_capacity: float | None
    ):
        self.servers = servers
        self.objective = objective
        self.link_capacity = link_capacity
        self.links = list(combinations(range(len(servers)), 2))
        self.slots = [server.used for server in servers]
        self.rates = [Fraction(server.used) for server in servers]
        self.exchanged = [Fraction(0)] * len(self.links)

    def choose(self, service: Service, tie: Tie) -> tuple[int, ...] | None:
        """The server of each branch; None if no assignment keeps slots, memory and bandwidth."""
        best: Fraction | None = None
        chosen: tuple[int, ...] | None = None
        for assignment in self._list_assignments(service, tie):
            value = self._evaluate(service, assignment)
            if value is None:
                continue
            if best is None or value < best or (value == best and tie == "last"):
                best, chosen = value, assignment
        return chosen

    def _list_assignments(self, service: Service, tie: Tie) -> Iterable[tuple[int, ...]]:
        """All assignments in the order of the enumeration. Of those that differ only in which of
        the equal branches is where, the one that counts by the rule for ties."""
        indexes = range(len(self.servers))
        if not service.is_uniform:
            return product(indexes, repeat=service.branches)
        ascending = combinations_with_replacement(indexes, service.branches)
        return ascending if tie == "first" else sorted(each[::-1] for each in ascending)

    def _evaluate(self, service: Service, assignment: tuple[int, ...]) -> Fraction | None:
        """The objective after this assignment; None if it exceeds a limit."""
        slots, rates, exchanged = self._sum_up(service, assignment)
        for index, server in enumerate(self.servers):
            if slots[index] > server.slots:
                return None
            if server.memory is not None and rates[index] > Fraction(server.memory):
                return None
        if self.link_capacity is not None and max(exchanged, default=0) > self.link_capacity:
            return None
        of_servers = [rate / server.slots for rate, server in zip(rates, self.servers, strict=True)]
        of_links = [rate / self._capacity_of(n) for n, rate in enumerate(exchanged)]
        if self.objective == "joint":
            return compute_variance([*of_servers, *of_links])
        variance = compute_variance(of_servers)
        return variance + compute_variance(of_links) if self.objective == "both" else variance

    def _capacity_of(self, link: int) -> Fraction:
        if self.link_capacity is not None:
            return Fraction(self.link_capacity)
        a, b = self.links[link]
        return Fraction(min(self.servers[a].slots, self.servers[b].slots))

    def _sum_up(
        self, service: Service, assignment: tuple[int, ...]
    ) -> tuple[list[int], list[Fraction], list[Fraction]]:
        """Slots, rates and exchange with this service added."""
        slots, rates, exchanged = list(self.slots), list(self.rates), list(self.exchanged)
        for rate, index in zip(service.rates, assignment, strict=True):
            slots[index] += 1
            rates[index] += Fraction(rate)
        numbers = {link: number for number, link in enumerate(self.links)}
        for k, m in combinations(range(service.branches), 2):
            a, b = sorted((assignment[k], assignment[m]))
            if a != b:
                exchanged[numbers[a, b]] += Fraction(service.exchange_of(k, m))
        return slots, rates, exchanged

    def add(self, service: Service, assignment: tuple[int, ...]) -> None:
        """Count the service in."""
        self.slots, self.rates, self.exchanged = self._sum_up(service, assignment)

    def describe_limits(self) -> str:
        """The limits besides slots, for an error."""
        limits = []
        if any(server.memory is not None for server in self.servers):
            limits.append("memory")
        if self.link_capacity is not None:
            limits.append(f"links of {self.link_capacity:g}")
        return f", limited by {' and '.join(limits)}" if limits else ""


def compute_variance(shares: Sequence[Fraction]) -> Fraction:
    """The mean square deviation; 0 of nothing."""
    if not shares:
        return Fraction(0)
    mean = sum(shares, Fraction(0)) / len(shares)
    return sum(((share - mean) ** 2 for share in shares), Fraction(0)) / len(shares)
