"""The exact policy: as few bytes between sites as the limits allow, by HiGHS through scipy."""

from __future__ import annotations

from dataclasses import dataclass

from speck.placement.answer import answer
from speck.placement.evaluate import predict
from speck.placement.greedy import greedy
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.program import Program, Solution


@dataclass(frozen=True, slots=True)
class Milp:
    """Policy `milp`.

    Proven optimal unless `time_limit_s` stops it; then the best that was found, with its gap
    (which part of its objective may be too much), and not deterministic. Where no placement keeps
    all limits the answer is the one that passes them least (sum of each excess in shares of its
    limit), and its violations name them.
    """

    name: str = "milp"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        limit = problem.limits.time_limit_s
        found = Program(instance).solve(limit)
        if found.impossible:
            return self._least_bad(instance, limit)
        return self._best(instance, found)

    def _best(self, instance: Instance, found: Solution) -> Placement:
        notes: list[str] = []
        sites = found.sites
        if not found.proven:
            notes.append(
                f"stopped after {instance.limits.time_limit_s:g} s, before the optimum was proven"
            )
            quick = greedy(instance)
            better = sites is None or instance.objective(quick) < instance.objective(sites)
            if better and not (sites is not None and predict(instance, quick).violations):
                sites = quick
                notes.append("greedy's placement is better than what was found until then")
        assert sites is not None  # greedy always answers
        if found.proven:
            return answer(self.name, instance, sites, notes=notes, optimal=True, gap=0.0)
        cost = instance.objective(sites)
        gap = None if found.bound is None else max(0.0, 1 - found.bound / cost) if cost else 0.0
        return answer(self.name, instance, sites, notes=notes, gap=gap)

    def _least_bad(self, instance: Instance, limit: float) -> Placement:
        found = Program(instance, elastic=True).solve(limit, gap=1e-4)
        sites = found.sites or greedy(instance)
        notes = ["no placement keeps all limits; this one passes them least"]
        if not found.proven:
            notes = [f"no placement keeps all limits; the least bad one found in {limit:g} s"]
        return answer(self.name, instance, sites, notes=notes)
