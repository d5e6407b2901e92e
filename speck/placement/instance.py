"""A problem, checked and indexed: what every policy and the prediction work on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from speck.errors import PermanentError
from speck.placement.model import Flow, Kind, Load, Place, Problem

CLOUD = "cloud"
TOLERANCE = 2e-6
"""By how much, relative to a limit, a figure may pass it: twice the solver's own tolerance."""


class Instance:
    """Loads, flows and places by name.

    `order`: loads, each after those that feed it. `fixed`: loads that cannot move, with their
    site, and `why` in words. `movable`: all others, in `order`. `intake`: records a second that
    the composition takes in. `scale`: by what work and flows are multiplied where limits are
    checked, so that `Limits.min_rate` can be taken in; 1 when what is offered is that much.

    Raises PermanentError for a problem that has no placement at all: no places, names given
    twice or unknown, a circle of flows, a pin to a place that is not there.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.limits = problem.limits
        self.places = {place.name: place for place in problem.places}
        self.loads = {load.name: load for load in problem.loads}
        _refuse_bad_names(problem)
        self.into: dict[str, list[Flow]] = {name: [] for name in self.loads}
        self.out: dict[str, list[Flow]] = {name: [] for name in self.loads}
        for flow in problem.flows:
            self.into[flow.end].append(flow)
            self.out[flow.start].append(flow)
        self.order = self._order()
        self.clouds = [place for place in problem.places if place.tier == CLOUD]
        self.edges = [place for place in problem.places if place.tier != CLOUD]
        self.fixed: dict[str, str] = {}
        self.why: dict[str, str] = {}
        for load in problem.loads:
            self._fix(load)
        self.movable = tuple(name for name in self.order if name not in self.fixed)
        self.work = {load.name: _work(load) for load in problem.loads}
        self.intake = self._intake()
        wanted = problem.limits.min_rate
        short = wanted is not None and 0 < self.intake < wanted
        self.scale = wanted / self.intake if short and wanted is not None else 1.0

    def _order(self) -> tuple[str, ...]:
        sorter = TopologicalSorter({name: [] for name in self.loads})
        for flow in self.problem.flows:
            sorter.add(flow.end, flow.start)
        try:
            return tuple(sorter.static_order())
        except CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise PermanentError(f"cannot place a circle of flows: {circle}") from error

    def _fix(self, load: Load) -> None:
        if load.pinned is not None:
            self._fix_at(load, load.pinned, "it is pinned")
        elif load.kind is Kind.END:
            if load.site is None:
                raise PermanentError(
                    f"cannot place {load.name}: it is outside speck and no site is given for it"
                )
            self._fix_at(load, load.site, "it is outside speck")
        elif load.kind is Kind.JOB and load.work is None:
            if load.site is not None:
                self._fix_at(load, load.site, "it was not measured well enough")
            else:
                home = (self.clouds or self.edges)[0].name
                self._fix_at(load, home, "it was not measured, and runs nowhere yet")

    def _fix_at(self, load: Load, site: str, why: str) -> None:
        if site not in self.places:
            raise PermanentError(
                f"cannot place {load.name} at {site}, where it must be ({why}): "
                f"there is no such site among {', '.join(self.places)}"
            )
        self.fixed[load.name] = site
        self.why[load.name] = why

    def _intake(self) -> float:
        fed = [f for f in self.problem.flows if self.loads[f.start].kind is Kind.END]
        if fed:
            return sum(flow.records_per_s for flow in fed)
        first = (load for load in self.problem.loads if not self.into[load.name])
        return sum(load.rate or 0.0 for load in first)

    def slots(self, name: str) -> int:
        """Task slots that a load takes: none but jobs take any."""
        load = self.loads[name]
        return load.slots if load.kind is Kind.JOB else 0

    def speed(self, name: str, place: Place) -> float:
        """Reference core-seconds a second that the job's subtasks can use there at most."""
        return min(float(max(1, self.loads[name].slots)), place.cores) * place.pace

    def keeps_up(self, name: str, place: Place) -> bool:
        """Whether the job can take what it is offered (scaled) there, were it alone."""
        work = self.work[name] * self.scale
        return work <= self.speed(name, place) * (1 + TOLERANCE)

    def service_ms(self, name: str, place: Place) -> float:
        """Mean time that a record spends in the job there: c / (min(1, cores) pace) / (1 - rho).

        The sojourn time of an M/M/1 queue (e.g. Kleinrock, Queueing Systems I, 3.2), rho being
        the busy share of the job's own subtasks; infinite where it cannot keep up. What other
        jobs of the site take of the processor is left out: it has cores to spare while it keeps
        `Limits.utilisation`.
        """
        load = self.loads[name]
        if load.kind is not Kind.JOB or not load.core_s_per_record:
            return 0.0
        speed = self.speed(name, place)
        if speed <= 0 or self.work[name] >= speed:
            return math.inf
        alone = load.core_s_per_record / (min(1.0, place.cores) * place.pace)
        return 1000 * alone / (1 - self.work[name] / speed)

    def room(self, place: Place) -> float:
        """Reference core-seconds a second that may be taken of the place."""
        return max(0.0, self.limits.utilisation * place.capacity - place.busy)

    def network_ms(self, start: str, end: str) -> float:
        """One way between two sites; nothing within one."""
        if start == end:
            return 0.0
        return self.places[start].latency_ms + self.places[end].latency_ms

    def price(self, flow: Flow, start: str, end: str) -> float:
        """What the flow costs between two sites: bytes a second, and its latency's worth."""
        if start == end:
            return 0.0
        return flow.bytes_per_s + self.limits.latency_weight * self.network_ms(start, end)

    def objective(self, sites: Mapping[str, str]) -> float:
        """Bytes a second that cross between sites, plus the latency's worth."""
        return math.fsum(self.price(f, sites[f.start], sites[f.end]) for f in self.problem.flows)


def _work(load: Load) -> float:
    return (load.work or 0.0) if load.kind is Kind.JOB else 0.0


def _refuse_bad_names(problem: Problem) -> None:
    if not problem.places:
        raise PermanentError("cannot place anything: there are no sites")
    for what, names in (
        ("load", [load.name for load in problem.loads]),
        ("site", [place.name for place in problem.places]),
    ):
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        if twice:
            raise PermanentError(f"cannot place: {what} given twice: {', '.join(twice)}")
    known = {load.name for load in problem.loads}
    for flow in problem.flows:
        for name in (flow.start, flow.end):
            if name not in known:
                raise PermanentError(
                    f"cannot place: the flow {flow.start} -> {flow.end} names {name}, "
                    f"which is not among the loads"
                )
