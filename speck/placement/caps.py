"""Thresholds on processor, state and network for each site, made as tight as a placement allows.

After CAPSys (Y. Wang et al., "CAPSys: Contention-aware task placement for data stream
processing", EuroSys 2025): a plan's cost on a resource is the load of the most loaded worker; a
search places task after task and gives up a branch where a load passes its threshold; thresholds
begin tight and are relaxed until a plan is found. Here workers are sites, unlike ones:

- processor: reference core-seconds a second, of the site's capacity;
- state: bytes of state that checkpoints write, of all state, for each share of all capacity;
- network: bytes a second that leave the site, of its uplink (without one: of all that flows).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from speck.placement.answer import answer
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Kind, Placement, Problem

RELAX = 1.2
"""By what thresholds grow when no plan is found."""
ROUNDS = 18
"""Until each is at 20 times an even division: then hard limits are all that binds."""
STEPS = 4
"""Placements tried for each load, on average, before thresholds are relaxed."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Policy `caps`.

    Begins with the thresholds of a perfect division (all work and all state spread by capacity; a
    tenth of each uplink) and relaxes all alike. Loads are placed along the graph, each at the site
    where the highest of the loads that it changes is least. A placement also has to keep the hard
    limits; if none that is found does, each load goes where limits are passed least, and the
    violations tell.
    """

    name: str = "caps"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        search = _Search(instance)
        factor = 1.0
        for _ in range(ROUNDS):
            found = search.plan(factor)
            if found is not None:
                note = (
                    f"thresholds: processor {search.first[0] * factor:.0%}, state "
                    f"{search.first[1] * factor:.0%}, network {search.first[2] * factor:.0%}"
                )
                return answer(self.name, instance, found, notes=[note])
            factor *= RELAX
        note = f"no placement within thresholds up to {factor:.0f} times an even division"
        return answer(self.name, instance, search.any_plan(), notes=[note])


class _Search:
    """Depth first over loads, along the graph."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.capacity = math.fsum(place.capacity for place in instance.places.values()) or 1.0
        self.state = math.fsum(map(self._state, instance.loads)) or 1.0
        self.flow = math.fsum(flow.bytes_per_s for flow in instance.problem.flows) or 1.0
        work = math.fsum(instance.work.values()) * instance.scale
        busy = math.fsum(place.busy for place in instance.places.values())
        self.first = (max(0.01, (work + busy) / self.capacity), 1.0, 0.1)
        self.order = instance.movable

    def _state(self, name: str) -> float:
        load = self.instance.loads[name]
        return float(load.state_bytes or 0) if load.kind is Kind.JOB else 0.0

    def plan(self, factor: float) -> dict[str, str] | None:
        """Sites by load within the thresholds times `factor`, and within the limits."""
        self._clear()
        self.most = tuple(threshold * factor for threshold in self.first)
        self.before = self.filling.excess()
        self.steps = 0
        return dict(self.filling.sites) if self._descend() else None

    def _clear(self) -> None:
        self.filling = Filling(self.instance)
        self.held = dict.fromkeys(self.instance.places, 0.0)
        for name, site in self.instance.fixed.items():
            self.held[site] += self._state(name)

    def _descend(self) -> bool:
        # a stack of our own: a composition may have more loads than Python has frames
        waiting = [self._choices(self.order[0])] if self.order else []
        while waiting:
            depth = len(waiting) - 1
            self._take(self.order[depth])
            if self.steps > STEPS * len(self.order):
                return False
            if not waiting[-1]:
                waiting.pop()
                continue
            self._put(self.order[depth], waiting[-1].pop(0))
            self.steps += 1
            if len(waiting) == len(self.order):
                return True
            waiting.append(self._choices(self.order[depth + 1]))
        return not self.order

    def _choices(self, name: str) -> list[str]:
        """Sites within the thresholds, the least loaded first; where it is now on ties."""
        found = []
        feeding = {
            self.filling.sites[flow.start]
            for flow in self.instance.into[name]
            if flow.start in self.filling.sites
        }
        for site, place in self.instance.places.items():
            if not self.instance.keeps_up(name, place):
                continue
            self._put(name, site)
            loads = [self._loads(other) for other in sorted(feeding | {site})]
            kept = self.filling.excess() <= self.before + 1e-9
            self._take(name)
            if kept and all(self._within(load) for load in loads):
                highest = max(self._share(load) for load in loads)
                stays = self.instance.loads[name].site != site
                found.append((round(highest, 9), stays, site))
        return [site for _, _, site in sorted(found, key=lambda choice: choice[:2])]

    def _share(self, load: tuple[float, float, float]) -> float:
        """Of a site's loads the one nearest to its threshold."""
        return max(x / most for x, most in zip(load, self.most, strict=True))

    def _within(self, load: tuple[float, float, float]) -> bool:
        return all(x <= most * (1 + 1e-9) for x, most in zip(load, self.most, strict=True))

    def _loads(self, site: str) -> tuple[float, float, float]:
        place, filling = self.instance.places[site], self.filling
        work, sent = filling.work[site] + place.busy, filling.sent[site]
        share = place.capacity / self.capacity
        uplink = place.uplink or self.flow * self.instance.scale
        return (
            work / place.capacity if place.capacity else (math.inf if work else 0.0),
            self.held[site] / self.state / share if share else 0.0,
            sent / uplink,
        )

    def _put(self, name: str, site: str) -> None:
        self._take(name)
        self.filling.put(name, site)
        self.held[site] += self._state(name)

    def _take(self, name: str) -> None:
        if name in self.filling.sites:
            self.held[self.filling.sites[name]] -= self._state(name)
            self.filling.take(name)

    def any_plan(self) -> dict[str, str]:
        """Without thresholds: each load where limits are passed least."""
        self._clear()
        for name in self.order:
            best: tuple[float, float, str] | None = None
            for site in self.instance.places:
                cost = self.filling.cost(name, site)
                self._put(name, site)
                found = (self.filling.excess(), cost, site)
                self._take(name)
                best = found if best is None or found < best else best
            if best is not None:
                self._put(name, best[2])
        return dict(self.filling.sites)
