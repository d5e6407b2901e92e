"""A partial placement with the load of each site, for policies that place one load at a time.

The limits of sites (utilisation, slots, uplinks, memory) and of jobs (keeping up) are checked at
each step. Latency is not, since a path is known only once all of it is placed; a latency that is
too long shows up in the placement's violations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from speck.placement.evaluate import SiteSums
from speck.placement.instance import TOLERANCE, Instance
from speck.placement.model import Flow


class Filling:
    """The `sites` by load, changed one load at a time, and the sums of each site."""

    def __init__(self, instance: Instance, sites: Mapping[str, str] | None = None):
        self.instance = instance
        self.sites: dict[str, str] = {}
        self.work = dict.fromkeys(instance.places, 0.0)
        self.slots = dict.fromkeys(instance.places, 0)
        self.sent = dict.fromkeys(instance.places, 0.0)
        self.memory = dict.fromkeys(instance.places, 0.0)
        self._excess = dict.fromkeys(instance.places, 0.0)
        for name, site in {**(sites or {}), **instance.fixed_sites}.items():
            self.put(name, site)

    def put(self, name: str, site: str) -> None:
        """Place a load, or move it."""
        self.take(name)
        self._add_to_sums(name, site, 1)
        self.sites[name] = site

    def take(self, name: str) -> None:
        """Remove a load, if it is placed."""
        if name in self.sites:
            self._add_to_sums(name, self.sites[name], -1)
            del self.sites[name]

    def _add_to_sums(self, name: str, site: str, sign: int) -> None:
        instance, changed_sites = self.instance, {site}
        self.work[site] += sign * instance.work[name] * instance.scale
        self.slots[site] += sign * instance.slots_of(name)
        self.memory[site] += sign * instance.memory_of(name)
        for sender, rate in self._list_traffic(name, site):
            self.sent[sender] += sign * rate
            changed_sites.add(sender)
        for changed_site in changed_sites:
            self._excess[changed_site] = self._compute_excess(changed_site)

    def _list_traffic(self, name: str, site: str) -> Iterable[tuple[str, float]]:
        """Bytes per second between a load at `site` and loads elsewhere: (sending site, rate)."""
        scale = self.instance.scale
        for flow in self.instance.into[name]:
            other = self.sites.get(flow.start)
            if other is not None and other != site:
                yield other, flow.bytes_per_s * scale
        for flow in self.instance.out[name]:
            other = self.sites.get(flow.end)
            if other is not None and other != site:
                yield site, flow.bytes_per_s * scale

    def cost_of(self, name: str, site: str) -> float:
        """The cost of the load's flows to and from placed loads if it is at `site`."""
        return sum(self._list_prices(name, site))

    def _list_prices(self, name: str, site: str) -> Iterable[float]:
        for flow in self.instance.into[name]:
            if flow.start in self.sites:
                yield self.instance.price_of(flow, self.sites[flow.start], site)
        for flow in self.instance.out[name]:
            if flow.end in self.sites:
                yield self.instance.price_of(flow, site, self.sites[flow.end])

    def total_excess(self) -> float:
        """The sum of all excesses, each as a share of its limit; 0 if all limits are kept."""
        return math.fsum(self._excess.values())

    def excess_of(self, site: str) -> float:
        """The excesses of one site, as shares of its limits."""
        return self._excess[site]

    def sums_of(self, site: str) -> SiteSums:
        """What the placed loads use of a site, at the rate that is asked for."""
        return SiteSums(self.work[site], self.slots[site], self.sent[site], self.memory[site])

    def list_exceeded_sites(self) -> list[str]:
        """Sites that exceed a limit."""
        return [site for site, excess in self._excess.items() if excess > 0]

    def _compute_excess(self, site: str) -> float:
        place, work = self.instance.places[site], self.work[site]
        total = (
            _share_over(work - self.instance.room_at(place), place.capacity) if work > 1e-9 else 0.0
        )
        if place.slots is not None:
            total += _share_over(self.slots[site] - place.slots, place.slots)
        if place.uplink is not None:
            total += _share_over(self.sent[site] - place.uplink, place.uplink)
        today = self.instance.closed_uplinks.get(site)
        if today is not None:
            total += _share_over(self.sent[site] - today * self.instance.scale, today)
        return total + self.memory_excess_of(site)

    def memory_excess_of(self, site: str) -> float:
        """By how much the jobs exceed the site's memory, as a share of it; 0 if they do not."""
        memory = self.instance.places[site].memory_bytes
        if memory is None or self.memory[site] <= memory * (1 + TOLERANCE):
            return 0.0
        return _share_over(self.memory[site] - memory, memory)

    def fits(self, name: str, site: str) -> bool:
        """Whether the load can go to `site` without increasing any excess."""
        if not self.instance.may_be_at(name, site):
            return False
        if not self.instance.keeps_up(name, self.instance.places[site]):
            return False
        before, previous_site = self.total_excess(), self.sites.get(name)
        self.put(name, site)
        after = self.total_excess()
        if previous_site is None:
            self.take(name)
        else:
            self.put(name, previous_site)
        return after <= before + 1e-9

    def find_main_input(self, name: str) -> Flow | None:
        """The largest flow from a placed load to this one; the first on ties."""
        inputs = [flow for flow in self.instance.into[name] if flow.start in self.sites]
        return max(inputs, key=lambda flow: flow.bytes_per_s, default=None)


def _share_over(over: float, limit: float) -> float:
    return over / (limit or 1.0) if over > 1e-9 * (limit or 1.0) else 0.0
