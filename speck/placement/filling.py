"""A placement that is being made, with what each site has left: for policies that go step by step.

Limits of sites (utilisation, slots, uplinks) and of jobs (keeping up) are looked at with each
step. Latency is not: a step-by-step policy cannot know a path before all of it is placed; the
answer's violations tell it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from speck.placement.instance import Instance
from speck.placement.model import Flow


class Filling:
    """`sites` by load; changes one load at a time and keeps the sums."""

    def __init__(self, instance: Instance, sites: Mapping[str, str] | None = None):
        self.instance = instance
        self.sites: dict[str, str] = {}
        self.work = dict.fromkeys(instance.places, 0.0)
        self.slots = dict.fromkeys(instance.places, 0)
        self.sent = dict.fromkeys(instance.places, 0.0)
        self._passed = dict.fromkeys(instance.places, 0.0)
        for name, site in {**(sites or {}), **instance.fixed}.items():
            self.put(name, site)

    def put(self, name: str, site: str) -> None:
        """Place a load, or move it."""
        self.take(name)
        self._count(name, site, 1)
        self.sites[name] = site

    def take(self, name: str) -> None:
        """Take a load out, if it is in."""
        if name in self.sites:
            self._count(name, self.sites[name], -1)
            del self.sites[name]

    def _count(self, name: str, site: str, sign: int) -> None:
        instance, touched = self.instance, {site}
        self.work[site] += sign * instance.work[name] * instance.scale
        self.slots[site] += sign * instance.slots(name)
        for sender, rate in self._sends(name, site):
            self.sent[sender] += sign * rate
            touched.add(sender)
        for changed in touched:
            self._passed[changed] = self._excess_of(changed)

    def _sends(self, name: str, site: str) -> Iterable[tuple[str, float]]:
        """What crosses to and from a load at `site`, by the site that it leaves."""
        scale = self.instance.scale
        for flow in self.instance.into[name]:
            other = self.sites.get(flow.start)
            if other is not None and other != site:
                yield other, flow.bytes_per_s * scale
        for flow in self.instance.out[name]:
            other = self.sites.get(flow.end)
            if other is not None and other != site:
                yield site, flow.bytes_per_s * scale

    def cost(self, name: str, site: str) -> float:
        """What the load's flows to those that are placed cost if it is at `site`."""
        return sum(self._prices(name, site))

    def _prices(self, name: str, site: str) -> Iterable[float]:
        for flow in self.instance.into[name]:
            if flow.start in self.sites:
                yield self.instance.price(flow, self.sites[flow.start], site)
        for flow in self.instance.out[name]:
            if flow.end in self.sites:
                yield self.instance.price(flow, site, self.sites[flow.end])

    def excess(self) -> float:
        """By how much limits are passed, each in shares of itself; 0 when all are kept."""
        return math.fsum(self._passed.values())

    def passed(self) -> list[str]:
        """Sites that pass a limit."""
        return [site for site, excess in self._passed.items() if excess > 0]

    def _excess_of(self, site: str) -> float:
        place, work = self.instance.places[site], self.work[site]
        total = _passed(work - self.instance.room(place), place.capacity) if work > 1e-9 else 0.0
        if place.slots is not None:
            total += _passed(self.slots[site] - place.slots, place.slots)
        if place.uplink is not None:
            total += _passed(self.sent[site] - place.uplink, place.uplink)
        return total

    def fits(self, name: str, site: str) -> bool:
        """Whether the load may go to `site` without passing a limit more than now."""
        if not self.instance.keeps_up(name, self.instance.places[site]):
            return False
        before, was = self.excess(), self.sites.get(name)
        self.put(name, site)
        after = self.excess()
        if was is None:
            self.take(name)
        else:
            self.put(name, was)
        return after <= before + 1e-9

    def main_input(self, name: str) -> Flow | None:
        """Of what is placed, what sends the most to a load (the first on ties)."""
        placed = [flow for flow in self.instance.into[name] if flow.start in self.sites]
        return max(placed, key=lambda flow: flow.bytes_per_s, default=None)


def _passed(over: float, limit: float) -> float:
    return over / (limit or 1.0) if over > 1e-9 * (limit or 1.0) else 0.0
