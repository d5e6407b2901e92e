"""RoLBTS as policies: balance the share of used slots over the sites.

Both policies consider slots and memory only; a placement that exceeds another limit reports it as
a violation. A job is not divided over sites: it is a service whose branches (slots) stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.program import Expression, Program, Solution, find_least_excess
from speck.placement.rolbts import Tie
from speck.placement.simple import place_in_cloud


@dataclass(frozen=True, slots=True)
class Rolbts:
    """Policy `rolbts`: the published algorithm (`rolbts.assign_as_published`) on jobs and sites.

    Jobs are placed in the order of the graph. Each goes, with all its slots, to the site that
    minimises the variance of the sites' shares of used slots; on ties to the first such site
    (`tie="last"`: the last). A topic goes to the site that sends most of its bytes.
    """

    name: str = "rolbts"
    tie: Tie = "first"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        slots = _count_slots(instance)
        filling = Filling(instance)
        for name in instance.movable:
            if not instance.slots_of(name):
                flow = filling.find_main_input(name)
                first = next(iter(instance.places))
                filling.put(name, filling.sites[flow.start] if flow is not None else first)
                continue
            best: tuple[Fraction, str] | None = None
            for site in instance.places:
                variance = _compute_variance(filling, slots, name, site)
                if variance is None:
                    continue
                if (
                    best is None
                    or variance < best[0]
                    or (variance == best[0] and self.tie == "last")
                ):
                    best = (variance, site)
            filling.put(name, best[1] if best is not None else max(slots, key=lambda s: slots[s]))
        return make_placement(self.name, instance, filling.sites)


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
    used = {**filling.slots, site: filling.slots[site] + filling.instance.slots_of(name)}
    if any(used[other] > slot_count for other, slot_count in slots.items() if other == site):
        return None
    shares = [
        Fraction(used[other], slot_count) for other, slot_count in slots.items() if slot_count
    ]
    total = sum(shares, Fraction(0))
    return sum((x * x for x in shares), Fraction(0)) - total * total / len(shares)


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
