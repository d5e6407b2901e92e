"""RoLBTS as policies: sites evenly full, by the share of their slots that is taken.

Both know slots only; other limits that their placements pass are told as violations. A job is not
divided over sites, so each is a service whose branches (slots) stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from speck.placement.answer import answer
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.program import Expression, Program, Solution
from speck.placement.rolbts import Tie


@dataclass(frozen=True, slots=True)
class Rolbts:
    """Policy `rolbts`: the published algorithm (`rolbts.published`) on jobs and sites.

    Jobs arrive along the graph; each goes, with all its slots, where the variance of the sites'
    shares of taken slots becomes least, to the first of several (`tie="last"`: the last). Topics
    go where most of what they carry comes from.
    """

    name: str = "rolbts"
    tie: Tie = "first"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        slots = _slots(instance)
        filling = Filling(instance)
        for name in instance.movable:
            if not instance.slots(name):
                flow = filling.main_input(name)
                first = next(iter(instance.places))
                filling.put(name, filling.sites[flow.start] if flow is not None else first)
                continue
            best: tuple[Fraction, str] | None = None
            for site in instance.places:
                found = _variance_with(filling, slots, name, site)
                if found is None:
                    continue
                if best is None or found < best[0] or (found == best[0] and self.tie == "last"):
                    best = (found, site)
            filling.put(name, best[1] if best is not None else max(slots, key=lambda s: slots[s]))
        return answer(self.name, instance, filling.sites)


@dataclass(frozen=True, slots=True)
class RolbtsExact:
    """Policy `rolbts-exact`: the least uneven of all placements, then the least between sites.

    What is least is sum(slots x (share taken - share taken of all)^2) over sites: for sites of
    equally many slots the paper's variance, else each site weighted by its slots (which makes it
    separable, and so linear in steps of one slot). Two programs for HiGHS, within `time_limit_s`.
    """

    name: str = "rolbts-exact"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        slots = _slots(instance)
        half = problem.limits.time_limit_s / 2
        bare = Instance(_slots_only(problem, slots))
        even = Program(bare)
        spread = _spread(even, bare, slots)
        even.cost = [spread.terms.get(column, 0.0) for column in range(len(even.cost))]
        first = even.solve(half)
        if first.sites is None:
            sites = Program(bare, elastic=True).solve(half, gap=1e-4).sites
            notes = ["the jobs need more slots than there are; what is passed least"]
            return answer(self.name, instance, sites or bare.fixed, notes=notes)
        second = _least_apart(bare, slots, first.sites, half)
        proven = first.proven and second.proven
        notes = [] if proven else [f"stopped after {2 * half:g} s, before the optimum was proven"]
        return answer(
            self.name,
            instance,
            second.sites or first.sites,
            notes=notes,
            optimal=proven,
            gap=0.0 if proven else None,
        )


def _least_apart(
    bare: Instance, slots: dict[str, int], even: dict[str, str], limit: float
) -> Solution:
    program = Program(bare)
    spread = _spread(program, bare, slots)
    used = Filling(bare, even).slots
    most = sum(Fraction(used[site] ** 2, slots[site]) for site in slots if slots[site])
    # any other sum differs by more than this from the least one, unless slots are in thousands
    program.limit(spread, float(most) + 1e-5)
    return program.solve(limit)


def _spread(program: Program, instance: Instance, slots: dict[str, int]) -> Expression:
    """sum(used^2 / slots) over sites: a column for each slot, priced (2k - 1) / slots."""
    whole = Expression()
    for site, most in slots.items():
        taken = Expression()
        for name in instance.loads:
            if site in program.at[name]:
                taken.add(program.at[name][site], instance.slots(name))
        for number in range(1, most + 1):
            column = program.column(upper=1.0)
            whole.terms[column] = (2 * number - 1) / most
            taken.terms[column] = -1.0
        program.equal.append((taken.terms, -taken.constant))
    return whole


def _variance_with(
    filling: Filling, slots: dict[str, int], name: str, site: str
) -> Fraction | None:
    used = {**filling.slots, site: filling.slots[site] + filling.instance.slots(name)}
    if any(used[other] > most for other, most in slots.items() if other == site):
        return None
    shares = [Fraction(used[other], most) for other, most in slots.items() if most]
    total = sum(shares, Fraction(0))
    return sum((x * x for x in shares), Fraction(0)) - total * total / len(shares)


def _slots(instance: Instance) -> dict[str, int]:
    """By site; where slots are not known, enough for all jobs (as for the limits: none)."""
    jobs = sum(instance.slots(name) for name in instance.loads)
    return {
        place.name: jobs if place.slots is None else place.slots
        for place in instance.places.values()
    }


def _slots_only(problem: Problem, slots: dict[str, int]) -> Problem:
    """The same without limits other than slots."""
    return replace(
        problem,
        places=tuple(
            replace(place, slots=slots[place.name], uplink=None, cores=1e9, pace=1.0, busy=0.0)
            for place in problem.places
        ),
        limits=replace(problem.limits, max_latency_ms=None, min_rate=None, utilisation=1.0),
    )
