"""A checked and indexed problem, on which every policy and the prediction work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from speck.errors import PermanentError
from speck.placement.model import Flow, Kind, Load, Place, Problem
from speck.placement.move_costs import LEAST_STATEFUL

CLOUD = "cloud"
MEMORY_BYTES = 10e6
"""Memory of a task slot in use, where it was not measured: classes, buffers and the connectors'
state of a job in Flink 2.3."""
TOLERANCE = 2e-6
"""Relative amount by which a figure may exceed a limit: twice the solver's own tolerance."""


class Instance:
    """Loads, flows and places by name.

    `order`: loads, each after those that feed it. `fixed_sites`: the site of each load that cannot
    move, and `why` the reason. `movable`: all other loads, in `order`. `intake`: records per second
    that the composition takes in. `scale`: factor on work and flows where limits are checked, so
    that the composition can sustain `Limits.min_rate`; 1 if the measured intake is that high.
    `closed_uplinks`: by site with a closed uplink, the bytes per second that leave it today.

    Raises PermanentError for a problem without any placement: no places, duplicate or unknown
    names, a cycle of flows, a pin to an unknown place.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.limits = problem.limits
        self.places = {place.name: place for place in close_places(problem)}
        self.loads = {load.name: load for load in problem.loads}
        _refuse_bad_names(problem)
        self.into: dict[str, list[Flow]] = {name: [] for name in self.loads}
        self.out: dict[str, list[Flow]] = {name: [] for name in self.loads}
        for flow in problem.flows:
            self.into[flow.end].append(flow)
            self.out[flow.start].append(flow)
        self.order = self._sort_loads()
        self.clouds = [place for place in self.places.values() if place.tier == CLOUD]
        self.edges = [place for place in self.places.values() if place.tier != CLOUD]
        self.fixed_sites: dict[str, str] = {}
        self.why: dict[str, str] = {}
        for load in problem.loads:
            self._fix(load)
        if not problem.moves_unmeasured:
            self._fix_ends_without_evidence()
        self.movable = tuple(name for name in self.order if name not in self.fixed_sites)
        self.closed_uplinks = {
            place.name: self._sum_sent_today(place.name)
            for place in self.places.values()
            if place.uplink_closed is not None
        }
        self.work = {load.name: _work_of(load) for load in problem.loads}
        self.intake = self._sum_intake()
        min_rate = problem.limits.min_rate
        is_short = min_rate is not None and 0 < self.intake < min_rate
        self.scale = min_rate / self.intake if is_short and min_rate is not None else 1.0

    def _sort_loads(self) -> tuple[str, ...]:
        sorter = TopologicalSorter({name: [] for name in self.loads})
        for flow in self.problem.flows:
            sorter.add(flow.end, flow.start)
        try:
            return tuple(sorter.static_order())
        except CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))
            raise PermanentError(f"cannot place a cycle of flows: {cycle}") from error

    def _fix(self, load: Load) -> None:
        if load.pinned is not None:
            self._fix_at(load, load.pinned, "it is pinned")
        elif load.kind is Kind.END:
            if load.site is None:
                raise PermanentError(
                    f"cannot place {load.name}: it is outside speck and has no site"
                )
            self._fix_at(load, load.site, "it is outside speck")
        elif load.kind is Kind.JOB and load.work is None:
            if self.problem.moves_unmeasured and load.slots:
                return
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
        self.fixed_sites[load.name] = site
        self.why[load.name] = why

    def _fix_ends_without_evidence(self) -> None:
        for start, end in self.problem.unmeasured:
            for name in (start, end):
                site = self.loads[name].site
                if name not in self.fixed_sites and site is not None:
                    self._fix_at(self.loads[name], site, f"{start} -> {end} was not measured")

    def _sum_sent_today(self, site: str) -> float:
        return math.fsum(
            flow.bytes_per_s
            for flow in self.problem.flows
            if self.loads[flow.start].site == site != self.loads[flow.end].site
        )

    def sites_for(self, name: str) -> tuple[Place, ...]:
        """The places where a load may be: its own one and those that are open and can run it; if it
        runs nowhere and none is open, all that can run it, or all."""
        here, barred = self.loads[name].site, self.loads[name].barred
        places = tuple(self.places.values())
        able = tuple(each for each in places if each.name not in barred or each.name == here)
        allowed = tuple(each for each in able if each.closed is None or each.name == here)
        return allowed or able or places

    def may_be_at(self, name: str, site: str) -> bool:
        """Whether the site is one of `sites_for`."""
        load, place = self.loads[name], self.places[site]
        is_open = place.closed is None and site not in load.barred
        return is_open or load.site == site or place in self.sites_for(name)

    def _sum_intake(self) -> float:
        from_outside = [f for f in self.problem.flows if self.loads[f.start].kind is Kind.END]
        if from_outside:
            return sum(flow.records_per_s for flow in from_outside)
        entrances = (load for load in self.problem.loads if not self.into[load.name])
        return sum(load.rate or 0.0 for load in entrances)

    def slots_of(self, name: str) -> int:
        """Task slots that a load needs; only jobs need any."""
        load = self.loads[name]
        return load.slots if load.kind is Kind.JOB else 0

    def memory_of(self, name: str) -> float:
        """Bytes of memory that a load needs at its site; only running jobs need any."""
        load = self.loads[name]
        if load.kind is not Kind.JOB or not load.slots:
            return 0.0
        return load.slots * MEMORY_BYTES if load.memory_bytes is None else load.memory_bytes

    def speed_of(self, name: str, place: Place) -> float:
        """Maximum reference core-seconds per second that the job's subtasks can use there."""
        return min(float(max(1, self.loads[name].slots)), place.cores) * place.core_speed

    def keeps_up(self, name: str, place: Place) -> bool:
        """Whether the job, alone at the place, can process its (scaled) input rate."""
        work = self.work[name] * self.scale
        return work <= self.speed_of(name, place) * (1 + TOLERANCE)

    def service_ms_of(self, name: str, place: Place) -> float:
        """Mean time of a record in the job there: c / (min(1, cores) core_speed) / (1 - rho).

        That is the sojourn time of an M/M/1 queue (e.g. Kleinrock, Queueing Systems I, 3.2), rho
        being the busy share of the job's own subtasks; infinite if the job cannot keep up. The
        load of other jobs is ignored: a site that keeps `Limits.utilisation` has idle cores.
        """
        load = self.loads[name]
        if load.kind is not Kind.JOB or not load.core_s_per_record:
            return 0.0
        speed = self.speed_of(name, place)
        if speed <= 0 or self.work[name] >= speed:
            return math.inf
        alone = load.core_s_per_record / (min(1.0, place.cores) * place.core_speed)
        return 1000 * alone / (1 - self.work[name] / speed)

    def room_at(self, place: Place) -> float:
        """Reference core-seconds per second that these jobs may use at the place."""
        return max(0.0, self.limits.utilisation * place.capacity - place.busy)

    def network_ms_between(self, start: str, end: str) -> float:
        """One-way latency between two sites; 0 within one."""
        if start == end:
            return 0.0
        return self.places[start].latency_ms + self.places[end].latency_ms

    def price_of(self, flow: Flow, start: str, end: str) -> float:
        """Cost of the flow between two sites: bytes per second, plus the latency cost."""
        if start == end:
            return 0.0
        return flow.bytes_per_s + self.limits.latency_weight * self.network_ms_between(start, end)

    def move_bytes_of(self, name: str) -> float:
        """Bytes that a move of the load costs once: its state, and what arrives in its silence."""
        load = self.loads[name]
        state = load.state_bytes or 0 if load.silence_s else 0
        return state + self.restart_bytes_of(name)

    def price_of_move(self, name: str) -> float:
        """Bytes per second that a move of the load has to save: its cost over the horizon, and of
        one that keeps state, or may, `LEAST_STATEFUL` at least."""
        return self._price(name, self.move_bytes_of(name))

    def restart_bytes_of(self, name: str) -> float:
        """Bytes that arrive while the load is restarted where it is, as when its link moves."""
        return self.loads[name].silence_s * sum(flow.bytes_per_s for flow in self.into[name])

    def price_of_restart(self, name: str) -> float:
        """As `price_of_move`, for a restart."""
        return self._price(name, self.restart_bytes_of(name))

    def _price(self, name: str, bytes_once: float) -> float:
        load = self.loads[name]
        if not load.silence_s:
            return 0.0
        price = bytes_once / self.limits.horizon_s
        return price if load.stateful is False else max(price, LEAST_STATEFUL)

    def price_of_moves(self, sites: Mapping[str, str]) -> float:
        """The prices of all moves from the present sites to these."""
        moved = (x.name for x in self.loads.values() if x.site in self.places)
        return sum(self.price_of_move(x) for x in moved if sites[x] != self.loads[x].site)

    def objective(self, sites: Mapping[str, str]) -> float:
        """Bytes per second between sites, plus the latency cost."""
        return math.fsum(self.price_of(f, sites[f.start], sites[f.end]) for f in self.problem.flows)


def close_places(problem: Problem) -> tuple[Place, ...]:
    """The places of the problem, those that carry a flow without evidence closed."""
    if problem.moves_unmeasured:
        return tuple(replace(each, closed=None, uplink_closed=None) for each in problem.places)
    site_of = {load.name: load.site for load in problem.loads}
    closed: dict[str, str] = {}
    uplinks: dict[str, str] = {}
    for start, end in problem.unmeasured:
        here, there = site_of.get(start), site_of.get(end)
        why = f"{start} -> {end} was not measured"
        for site in (here, there):
            if site is not None:
                closed.setdefault(site, why)
        if here is not None and here != there:
            uplinks.setdefault(here, why)
    return tuple(
        replace(
            place,
            closed=place.closed or closed.get(place.name),
            uplink_closed=place.uplink_closed or uplinks.get(place.name),
        )
        for place in problem.places
    )


def _work_of(load: Load) -> float:
    return (load.work or 0.0) if load.kind is Kind.JOB else 0.0


def _refuse_bad_names(problem: Problem) -> None:
    if not problem.places:
        raise PermanentError("cannot place anything: there are no sites")
    for what, names in (
        ("load", [load.name for load in problem.loads]),
        ("site", [place.name for place in problem.places]),
    ):
        duplicates = sorted(name for name, times in Counter(names).items() if times > 1)
        if duplicates:
            raise PermanentError(f"cannot place: duplicate {what}: {', '.join(duplicates)}")
    names_of_loads = {load.name for load in problem.loads}
    for start, end in [*((flow.start, flow.end) for flow in problem.flows), *problem.unmeasured]:
        for name in (start, end):
            if name not in names_of_loads:
                raise PermanentError(
                    f"cannot place: the flow {start} -> {end} names {name}, "
                    f"which is not among the loads"
                )
