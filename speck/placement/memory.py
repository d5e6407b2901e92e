"""Keeps the memory of sites, whatever the policy.

Memory is unlike other limits: an engine that runs out of it dies, with all jobs of its site, while
an engine that lacks processor time or an uplink is slow. So a policy's placement that exceeds it is
changed before it is returned.
"""

from __future__ import annotations

from collections.abc import Mapping

from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.program import Program


def keep_memory(instance: Instance, sites: Mapping[str, str]) -> dict[str, str]:
    """Sites by load, changed so that they keep memory.

    First, jobs are moved from the sites that lack memory to where they fit, the cheapest move
    first. If that does not suffice, the result is the exact placement that exceeds the other limits
    least. The sites are returned unchanged if no placement keeps memory, or none is found within
    `Limits.time_limit_s`.
    """
    filling = Filling(instance, sites)
    while _find_short_sites(filling) and _move_cheapest(filling):
        pass
    if not _find_short_sites(filling):
        return filling.sites
    solution = Program(instance, elastic=True).solve(instance.limits.time_limit_s, gap=1e-4)
    return dict(sites) if solution.sites is None else solution.sites


def _find_short_sites(filling: Filling) -> list[str]:
    return [site for site in filling.instance.places if filling.memory_excess_of(site) > 0]


def _move_cheapest(filling: Filling) -> bool:
    """Make the move that costs least of those that leave less excess of memory."""
    instance = filling.instance
    best: tuple[float, str, str] | None = None
    short_sites = _find_short_sites(filling)
    for name in instance.movable:
        here = filling.sites[name]
        if here not in short_sites or not instance.memory_of(name):
            continue
        for place in instance.sites_for(name):
            site, memory = place.name, place.memory_bytes
            room = None if memory is None else memory - filling.memory[site]
            if site == here or (room is not None and room < instance.memory_of(name)):
                continue
            if not filling.fits(name, site):
                continue
            cost = filling.cost_of(name, site) - filling.cost_of(name, here)
            best = min(best or (cost, name, site), (cost, name, site))
    if best is None:
        return False
    filling.put(best[1], best[2])
    return True
