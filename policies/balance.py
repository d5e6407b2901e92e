"""RoLBTS as policies, and FSACE, with which it was compared: balance the use of sites.

Limits that a policy does not consider are reported as violations. A job is not divided over sites:
it is a service whose branches (slots) stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Literal

from policies.rolbts import compute_variance
from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import TOLERANCE, Instance
from speck.placement.model import Place, Placement, Problem
from speck.placement.program import Expression, Program, Solution, find_least_excess
from speck.placement.simple import place_in_cloud


@dataclass(frozen=True, slots=True)
class Rolbts:
    """Policies `rolbts` and `rolbts-links`: the published algorithm
    (`rolbts.assign_as_published`) on jobs and sites.

    Jobs are placed in the order of the graph. Each goes, with all its slots, to the site that
    minimises the objective; on ties to the first such site. A topic goes to the site that sends
    most of its bytes. `objective`: the variance of the sites' shares of used
    slots (`nodes`); that plus the variance of the links' shares of used bandwidth (`both`), as in
    the paper's equation 4, without sites whose uplink lacks bandwidth (equation 6). There is a link
    between any two sites; the smaller of their uplinks is its bandwidth (without a limit: all bytes
    that flow).
    """

    name: str = "rolbts"
    objective: Literal["nodes", "both"] = "nodes"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        slots = _count_slots(instance)
        filling = Filling(instance)
        links = _Links(filling) if self.objective == "both" else None
        for name in instance.movable:
            if not instance.slots_of(name):
                filling.put(name, _find_topic_site(filling, name))
                continue
            best: tuple[Fraction, str] | None = None
            for place in instance.sites_for(name):
                site = place.name
                variance = _compute_variance(filling, slots, name, site)
                if variance is None or (links is not None and not links.have_room(name, site)):
                    continue
                if links is not None:
                    variance += links.compute_variance(name, site)
                if best is None or variance < best[0]:
                    best = (variance, site)
            if best is None:
                largest = max(instance.sites_for(name), key=lambda place: slots[place.name])
                best = (Fraction(0), largest.name)
            filling.put(name, best[1])
        return make_placement(self.name, instance, filling.sites)


def with_links() -> Rolbts:
    """Policy `rolbts-links`."""
    return Rolbts("rolbts-links", objective="both")


def _find_topic_site(filling: Filling, name: str) -> str:
    """The site that sends most of a topic's bytes, if the topic may be there; else the first."""
    flow, instance = filling.find_main_input(name), filling.instance
    if flow is not None and instance.may_be_at(name, filling.sites[flow.start]):
        return filling.sites[flow.start]
    return instance.sites_for(name)[0].name


class _Links:
    """The bytes per second between any two sites, as shares of the bandwidth between them."""

    def __init__(self, filling: Filling):
        self._filling = filling
        places = filling.instance.places
        total = sum(flow.bytes_per_s for flow in filling.instance.problem.flows) or 1.0
        self._bandwidths = {
            (a, b): Fraction(min(places[site].uplink or total for site in (a, b)))
            for a, b in combinations(sorted(places), 2)
        }

    def have_room(self, name: str, site: str) -> bool:
        """Whether all uplinks have enough bandwidth with the load at `site`."""
        self._filling.put(name, site)
        sent = self._filling.sent
        places = self._filling.instance.places.values()
        fits = all(
            place.uplink is None or sent[place.name] <= place.uplink * (1 + TOLERANCE)
            for place in places
        )
        self._filling.take(name)
        return fits

    def compute_variance(self, name: str, site: str) -> Fraction:
        """The variance of the links' shares with the load at `site`."""
        sites = {**self._filling.sites, name: site}
        used = dict.fromkeys(self._bandwidths, Fraction(0))
        for flow in self._filling.instance.problem.flows:
            start, end = sites.get(flow.start), sites.get(flow.end)
            if start is not None and end is not None and start != end:
                used[min(start, end), max(start, end)] += Fraction(flow.bytes_per_s)
        shares = [rate / self._bandwidths[link] for link, rate in used.items()]
        return compute_variance(shares)


@dataclass(frozen=True, slots=True)
class Fsace:
    """Policy `fsace`, after the scheduler that RoLBTS is compared with, reconstructed.

    Jobs are placed whole, in the order of the graph. Each goes to the site of the greatest ability
    that has slots, memory and processor time for it, on ties to the first. The ability is `weight`
    times the free share of memory (of slots where memory is unknown) plus the rest times the free
    share of the processor. Uplinks play no part.
    """

    name: str = "fsace"
    weight: float = 0.5

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            if not instance.slots_of(name) and filling.find_main_input(name) is not None:
                filling.put(name, _find_topic_site(filling, name))
                continue
            allowed = instance.sites_for(name)
            able = [place for place in allowed if _has_room(filling, name, place)]
            candidates = able or list(allowed)
            best = max(candidates, key=lambda place: self._rate_ability(filling, place))
            filling.put(name, best.name)
        return make_placement(self.name, instance, filling.sites)

    def _rate_ability(self, filling: Filling, place: Place) -> float:
        if place.memory_bytes is not None:
            memory = _find_free_share(filling.memory[place.name], place.memory_bytes)
        elif place.slots is not None:
            memory = _find_free_share(filling.slots[place.name], place.slots)
        else:
            memory = 1.0
        busy = place.busy + filling.work[place.name]
        processor = _find_free_share(busy, place.capacity)
        return self.weight * memory + (1 - self.weight) * processor


def _find_free_share(used: float, available: float) -> float:
    """The share that is free; 0 where there is nothing to use."""
    return 1 - used / available if available > 0 else 0.0


def _has_room(filling: Filling, name: str, place: Place) -> bool:
    """Whether the place has slots, memory and processor time for the load."""
    instance, site = filling.instance, place.name
    work = filling.work[site] + instance.work[name] * instance.scale
    slots = filling.slots[site] + instance.slots_of(name)
    memory = filling.memory[site] + instance.memory_of(name)
    return (
        instance.keeps_up(name, place)
        and work <= instance.room_at(place) * (1 + TOLERANCE)
        and (place.slots is None or slots <= place.slots)
        and (place.memory_bytes is None or memory <= place.memory_bytes)
    )


@dataclass(frozen=True, slots=True)
class RolbtsExact:
    """Policy `rolbts-exact`: the most even placement; among those, the fewest bytes between sites.

    It minimises sum(slots x (share used - mean share used)^2) over sites. For sites with equal
    numbers of slots that is the paper's variance; otherwise each site is weighted by its slots,
    which makes the sum separable, and so linear in steps of one slot. It solves two programs with
    HiGHS, within `time_limit_s`.
    """

    name: str = "rolbts-exact"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        slots = _count_slots(instance)
        half = problem.limits.time_limit_s / 2
        bare = Instance(_keep_slot_limits(problem, slots))
        even = Program(bare)
        spread = _express_spread(even, bare, slots)
        even.cost = [spread.terms.get(column, 0.0) for column in range(len(even.cost))]
        first = even.solve(half)
        if first.sites is None:
            sites = find_least_excess(bare, half).sites or place_in_cloud(instance)
            notes = ["no placement keeps slots and memory; this one exceeds them least"]
            return make_placement(self.name, instance, sites, notes=notes)
        second = _minimise_traffic(bare, slots, first.sites, half)
        proven = first.proven and second.proven
        notes = [] if proven else [f"stopped after {2 * half:g} s, before the optimum was proven"]
        return make_placement(
            self.name,
            instance,
            second.sites or first.sites,
            notes=notes,
            optimal=proven,
            gap=0.0 if proven else None,
        )


def _minimise_traffic(
    bare: Instance, slots: dict[str, int], even: dict[str, str], time_limit_s: float
) -> Solution:
    program = Program(bare)
    spread = _express_spread(program, bare, slots)
    used = Filling(bare, even).slots
    least_spread = sum(Fraction(used[site] ** 2, slots[site]) for site in slots if slots[site])
    # any other sum differs from the least by more than 1e-5 unless slots are in thousands
    program.add_limit(spread, float(least_spread) + 1e-5)
    return program.solve(time_limit_s)


def _express_spread(program: Program, instance: Instance, slots: dict[str, int]) -> Expression:
    """sum(used^2 / slots) over sites: a column for each slot, priced (2k - 1) / slots."""
    spread = Expression()
    for site, slot_count in slots.items():
        used = Expression()
        for name in instance.loads:
            if site in program.at[name]:
                used.add(program.at[name][site], instance.slots_of(name))
        for number in range(1, slot_count + 1):
            column = program.add_column(upper=1.0)
            spread.terms[column] = (2 * number - 1) / slot_count
            used.terms[column] = -1.0
        program.equal.append((used.terms, -used.constant))
    return spread


def _compute_variance(
    filling: Filling, slots: dict[str, int], name: str, site: str
) -> Fraction | None:
    """The variance of the shares of used slots with the load at `site`; None if it lacks slots or
    memory for it."""
    used = {**filling.slots, site: filling.slots[site] + filling.instance.slots_of(name)}
    memory = filling.instance.places[site].memory_bytes
    needed = filling.memory[site] + filling.instance.memory_of(name)
    if used[site] > slots[site] or (memory is not None and needed > memory * (1 + TOLERANCE)):
        return None
    return compute_variance(
        [Fraction(used[other], slot_count) for other, slot_count in slots.items() if slot_count]
    )


def _count_slots(instance: Instance) -> dict[str, int]:
    """Slots by site. A site of unknown slots has enough for all jobs, as limits treat it."""
    jobs = sum(instance.slots_of(name) for name in instance.loads)
    return {
        place.name: jobs if place.slots is None else place.slots
        for place in instance.places.values()
    }


def _keep_slot_limits(problem: Problem, slots: dict[str, int]) -> Problem:
    """The same problem without any limit but slots and memory."""
    return replace(
        problem,
        places=tuple(
            replace(
                place, slots=slots[place.name], uplink=None, cores=1e9, core_speed=1.0, busy=0.0
            )
            for place in problem.places
        ),
        limits=replace(problem.limits, max_latency_ms=None, min_rate=None, utilisation=1.0),
    )
