"""The exact policy: HiGHS (through scipy) minimises the bytes between sites within the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.evaluate import predict
from speck.placement.greedy import place_greedily
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.program import Program, Solution, find_least_excess


@dataclass(frozen=True, slots=True)
class Milp:
    """Policy `milp`.

    The result is proven optimal unless `time_limit_s` stops the search. Then it is the best
    placement found so far with its gap (the share of its objective that may be avoidable), and not
    deterministic. If no placement keeps all limits, the result is the one that exceeds them least
    (sum of excesses, each as a share of its limit), and its violations name them.
    """

    name: str = "milp"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        time_limit_s = problem.limits.time_limit_s
        solution = Program(instance).solve(time_limit_s)
        if solution.impossible:
            return self._place_with_least_excess(instance, time_limit_s)
        return self._place_within_limits(instance, solution)

    def _place_within_limits(self, instance: Instance, solution: Solution) -> Placement:
        notes: list[str] = []
        sites = solution.sites
        if not solution.proven:
            notes.append(
                f"stopped after {instance.limits.time_limit_s:g} s, before the optimum was proven"
            )
            alternative = place_greedily(instance)
            is_better = sites is None or _cost(instance, alternative) < _cost(instance, sites)
            if is_better and not (sites is not None and predict(instance, alternative).violations):
                sites = alternative
                notes.append("the placement of `greedy` is better than the solver's best so far")
        assert sites is not None  # greedy always finds one
        if solution.proven:
            return make_placement(self.name, instance, sites, notes=notes, optimal=True, gap=0.0)
        cost = _cost(instance, sites)
        gap = (
            None if solution.bound is None else max(0.0, 1 - solution.bound / cost) if cost else 0.0
        )
        return make_placement(self.name, instance, sites, notes=notes, gap=gap)

    def _place_with_least_excess(self, instance: Instance, time_limit_s: float) -> Placement:
        solution = find_least_excess(instance, time_limit_s)
        sites = solution.sites or place_greedily(instance)
        notes = ["no placement keeps all limits; this one exceeds them least"]
        if not solution.proven:
            notes = [
                f"no placement keeps all limits; the best one found in {time_limit_s:g} s is given"
            ]
        return make_placement(self.name, instance, sites, notes=notes)


def _cost(instance: Instance, sites: Mapping[str, str]) -> float:
    """What the program minimises: bytes between sites, and the price of the moves."""
    return instance.objective(sites) + instance.price_of_moves(sites)
