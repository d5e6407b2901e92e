"""Policy with thresholds on each site's processor, state and network, as tight as possible.

After CAPSys (Y. Wang et al., "CAPSys: Contention-aware task placement for data stream
processing", EuroSys 2025): a plan's cost on a resource is the load of the most loaded worker; a
search places one task after another and abandons a branch when a load exceeds its threshold;
thresholds start tight and are relaxed until a plan is found. Here the workers are sites, which are
heterogeneous:

- processor: reference core-seconds per second, as a share of the site's capacity;
- state: the site's share of all state bytes, divided by its share of all capacity;
- network: bytes per second that leave the site, as a share of its uplink (without an uplink limit:
  of all flows).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Kind, Placement, Problem

RELAX = 1.2
"""Factor by which thresholds grow when no plan is found."""
ROUNDS = 18
"""Maximum number of searches. The last thresholds are 20 times an even division: then only the hard
limits bind."""
STEPS = 4
"""Average number of placements to try for each load before thresholds are relaxed."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Policy `caps`.

    It starts with the thresholds of a perfect division (work and state spread by capacity; a tenth
    of each uplink) and relaxes all of them by the same factor. It places loads in the order of the
    graph, each at the site where the highest affected load is lowest. A placement must also keep
    the hard limits; if the search finds none, each load goes to the site that exceeds limits least,
    and the placement reports violations.
    """

    name: str = "caps"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        search = _Search(instance)
        factor = 1.0
        for _ in range(ROUNDS):
            sites = search.plan(factor)
            if sites is not None:
                processor, state, network = (x * factor for x in search.first_thresholds)
                shares = f"processor {processor:.0%}, state {state:.0%}, network {network:.0%}"
                note = f"thresholds: {shares}"
                return make_placement(self.name, instance, sites, notes=[note])
            factor *= RELAX
        note = f"no placement within thresholds up to {factor:.0f} times an even division"
        return make_placement(self.name, instance, search.plan_without_thresholds(), notes=[note])


class _Search:
    """A depth-first search over the loads, in the order of the graph."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.capacity = math.fsum(place.capacity for place in instance.places.values()) or 1.0
        self.total_state = math.fsum(map(self._state_bytes_of, instance.loads)) or 1.0
        self.total_flow = math.fsum(flow.bytes_per_s for flow in instance.problem.flows) or 1.0
        work = math.fsum(instance.work.values()) * instance.scale
        busy = math.fsum(place.busy for place in instance.places.values())
        self.first_thresholds = (max(0.01, (work + busy) / self.capacity), 1.0, 0.1)
        self.order = instance.movable

    def _state_bytes_of(self, name: str) -> float:
        load = self.instance.loads[name]
        return float(load.state_bytes or 0) if load.kind is Kind.JOB else 0.0

    def plan(self, factor: float) -> dict[str, str] | None:
        """Sites by load within the thresholds times `factor`, and within the limits."""
        self._clear()
        self.thresholds = tuple(threshold * factor for threshold in self.first_thresholds)
        self.fixed_excess = self.filling.total_excess()
        self.steps = 0
        return dict(self.filling.sites) if self._descend() else None

    def _clear(self) -> None:
        self.filling = Filling(self.instance)
        self.state_at = dict.fromkeys(self.instance.places, 0.0)
        for name, site in self.instance.fixed_sites.items():
            self.state_at[site] += self._state_bytes_of(name)

    def _descend(self) -> bool:
        # an explicit stack: a composition may have more loads than Python allows nested calls
        waiting = [self._list_choices(self.order[0])] if self.order else []
        while waiting:
            depth = len(waiting) - 1
            self._take_out(self.order[depth])
            if self.steps > STEPS * len(self.order):
                return False
            if not waiting[-1]:
                waiting.pop()
                continue
            self._put(self.order[depth], waiting[-1].pop(0))
            self.steps += 1
            if len(waiting) == len(self.order):
                return True
            waiting.append(self._list_choices(self.order[depth + 1]))
        return not self.order

    def _list_choices(self, name: str) -> list[str]:
        """Sites within the thresholds, least loaded first; on ties the current site first."""
        choices = []
        feeding_sites = {
            self.filling.sites[flow.start]
            for flow in self.instance.into[name]
            if flow.start in self.filling.sites
        }
        for place in self.instance.sites_for(name):
            site = place.name
            if not self.instance.keeps_up(name, place):
                continue
            self._put(name, site)
            loads = [self._loads_at(other) for other in sorted(feeding_sites | {site})]
            within_limits = self.filling.total_excess() <= self.fixed_excess + 1e-9
            self._take_out(name)
            if within_limits and all(self._is_within(load) for load in loads):
                highest = max(self._highest_share_of(load) for load in loads)
                stays = self.instance.loads[name].site != site
                choices.append((round(highest, 9), stays, site))
        return [site for _, _, site in sorted(choices, key=lambda choice: choice[:2])]

    def _highest_share_of(self, load: tuple[float, float, float]) -> float:
        """The largest of a site's loads, each as a share of its threshold."""
        return max(
            share / threshold for share, threshold in zip(load, self.thresholds, strict=True)
        )

    def _is_within(self, load: tuple[float, float, float]) -> bool:
        return all(
            share <= threshold * (1 + 1e-9)
            for share, threshold in zip(load, self.thresholds, strict=True)
        )

    def _loads_at(self, site: str) -> tuple[float, float, float]:
        place, filling = self.instance.places[site], self.filling
        work, sent = filling.work[site] + place.busy, filling.sent[site]
        share = place.capacity / self.capacity
        uplink = place.uplink or self.total_flow * self.instance.scale
        return (
            work / place.capacity if place.capacity else (math.inf if work else 0.0),
            self.state_at[site] / self.total_state / share if share else 0.0,
            sent / uplink,
        )

    def _put(self, name: str, site: str) -> None:
        self._take_out(name)
        self.filling.put(name, site)
        self.state_at[site] += self._state_bytes_of(name)

    def _take_out(self, name: str) -> None:
        if name in self.filling.sites:
            self.state_at[self.filling.sites[name]] -= self._state_bytes_of(name)
            self.filling.take(name)

    def plan_without_thresholds(self) -> dict[str, str]:
        """Place each load where it exceeds limits least, without thresholds."""
        self._clear()
        for name in self.order:
            best: tuple[float, float, str] | None = None
            for place in self.instance.sites_for(name):
                site = place.name
                cost = self.filling.cost_of(name, site)
                self._put(name, site)
                candidate = (self.filling.total_excess(), cost, site)
                self._take_out(name)
                best = candidate if best is None or candidate < best else best
            if best is not None:
                self._put(name, best[2])
        return dict(self.filling.sites)
