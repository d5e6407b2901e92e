"""The policy that follows the ranking, and keeps only moves that save bytes as things are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.ranking import rank_loads
from speck.placement.simple import place_in_cloud


@dataclass(frozen=True, slots=True)
class Greedy:
    """Policy `greedy`.

    It starts with everything in the cloud and repeatedly moves the job that the ranking puts first,
    as long as a move saves something and keeps the limits. Moves that the ranking does not suggest
    (topics, other sites) follow, the one that saves most first. Savings are updated after each
    move. A load moves alone, together with everything upstream of it, or together with its readers.
    The result never costs more than `all-cloud` if that keeps all limits. If limits are still
    exceeded in the end, the cheapest moves that relieve them follow.
    """

    name: str = "greedy"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        return make_placement(self.name, instance, place_greedily(instance))


def place_greedily(instance: Instance) -> dict[str, str]:
    """Compute sites by load."""
    filling = Filling(instance, place_in_cloud(instance))
    positions = _number_candidates(instance)
    _improve(filling, positions)
    while filling.total_excess() > 0 and _relieve(filling):
        _improve(filling, positions)
    return filling.sites


def _number_candidates(instance: Instance) -> dict[tuple[str, str], int]:
    """The position in the ranking of each (job, edge) that it suggests."""
    return {
        (each.name, each.suggested_site): position
        for position, each in enumerate(rank_loads(instance))
        if each.suggested_site is not None
    }


def _relieve(filling: Filling) -> bool:
    """Make the cheapest move that reduces the excess over limits; False if there is none."""
    best: tuple[float, list[str], str] | None = None
    exceeded = set(filling.list_exceeded_sites())
    for name in filling.instance.movable:
        if not exceeded & _find_relieved_sites(filling, name):
            continue
        for place in filling.instance.sites_for(name):
            site = place.name
            if site == filling.sites[name]:
                continue
            for group in _list_groups(filling, name, site):
                price = _price_relief(filling, group, site)
                if price is not None and (best is None or price < best[0]):
                    best = (price, group, site)
    if best is None:
        return False
    _put(filling, best[1], best[2])
    return True


def _find_relieved_sites(filling: Filling, name: str) -> set[str]:
    """The sites that a move of the load relieves: its own and those of its inputs."""
    into = filling.instance.into[name]
    return {filling.sites[name], *(filling.sites[flow.start] for flow in into)}


def _price_relief(filling: Filling, group: list[str], site: str) -> float | None:
    """Additional bytes per second for each unit of excess removed; None if none is removed."""
    place = filling.instance.places[site]
    if not all(filling.instance.keeps_up(name, place) for name in group):
        return None
    saving, before = _compute_saving(filling, group, site), filling.total_excess()
    previous_sites = _put(filling, group, site)
    gain = before - filling.total_excess()
    _put_back(filling, previous_sites)
    return -saving / gain if gain > 1e-6 else None


def _put(filling: Filling, group: list[str], site: str) -> dict[str, str]:
    """Move the whole group; return where its loads were."""
    previous_sites = {name: filling.sites[name] for name in group}
    for name in group:
        filling.put(name, site)
    return previous_sites


def _put_back(filling: Filling, previous_sites: dict[str, str]) -> None:
    for name, site in previous_sites.items():
        filling.put(name, site)


def _improve(filling: Filling, positions: Mapping[tuple[str, str], int]) -> None:
    """Repeat the move that the ranking puts first until no move saves anything."""
    version = dict.fromkeys(filling.instance.movable, 0)
    queue: list[_Proposal] = []

    def propose(name: str) -> None:
        for place in filling.instance.sites_for(name):
            site = place.name
            if site == filling.sites[name]:
                continue
            groups = _list_groups(filling, name, site)
            saving = max(_compute_saving(filling, group, site) for group in groups)
            if saving > 0:
                members = {member for group in groups for member in group}
                position = min(positions.get((each, site), len(positions)) for each in members)
                heapq.heappush(queue, (position, -saving, name, site, version[name]))

    for name in filling.instance.movable:
        propose(name)
    while queue:
        _, _, name, site, proposed_at = heapq.heappop(queue)
        if version[name] != proposed_at or filling.sites[name] == site:
            continue
        moved_loads: list[str] = []
        for group in _list_groups(filling, name, site):
            moved_loads = moved_loads or _move(filling, group, site)
        for other in _find_touched(filling.instance, moved_loads):
            version[other] += 1
            propose(other)


_Proposal = tuple[int, float, str, str, int]
"""(position in the ranking, -saving, load, site, version of the load)"""


def _compute_saving(filling: Filling, group: list[str], site: str) -> float:
    previous_sites = {name: filling.sites[name] for name in group}
    instance, saving = filling.instance, 0.0
    flows = {id(f): f for name in group for f in (*instance.into[name], *instance.out[name])}
    for flow in flows.values():
        start, end = filling.sites[flow.start], filling.sites[flow.end]
        saving += instance.price_of(flow, start, end)
        saving -= instance.price_of(
            flow,
            site if flow.start in previous_sites else start,
            site if flow.end in previous_sites else end,
        )
    return saving if abs(saving) > 1e-9 * sum(f.bytes_per_s for f in flows.values()) else 0.0


def _list_groups(filling: Filling, name: str, site: str) -> list[list[str]]:
    """Groups that may move to `site`: the load with its upstream, with its readers, or alone."""
    leading, following = _find_feeders(filling, name, site), _find_readers(filling, name, site)
    groups = [group for group in (leading, following) if len(group) > 1] + [[name]]
    may_be_at = filling.instance.may_be_at
    return [group for group in groups if all(may_be_at(each, site) for each in group)]


def _find_readers(filling: Filling, name: str, site: str) -> list[str]:
    return [name] + [
        flow.end
        for flow in filling.instance.out[name]
        if flow.end not in filling.instance.fixed_sites and filling.sites[flow.end] != site
    ]


def _find_feeders(filling: Filling, name: str, site: str) -> list[str]:
    group, waiting = [name], [name]
    while waiting:
        for flow in filling.instance.into[waiting.pop()]:
            start = flow.start
            if (
                start in filling.instance.fixed_sites
                or filling.sites[start] == site
                or start in group
            ):
                continue
            group.append(start)
            waiting.append(start)
    return group


def _move(filling: Filling, group: list[str], site: str) -> list[str]:
    """Move the group if that saves bytes and exceeds no limit; return the moved loads."""
    if _compute_saving(filling, group, site) <= 0:
        return []
    place = filling.instance.places[site]
    if not all(filling.instance.keeps_up(name, place) for name in group):
        return []
    before = filling.total_excess()
    previous_sites = _put(filling, group, site)
    if filling.total_excess() <= before + 1e-9:
        return group
    _put_back(filling, previous_sites)
    return []


def _find_touched(instance: Instance, moved_loads: list[str]) -> Iterable[str]:
    """Movable loads whose savings a move has changed, with their neighbours, in order."""
    touched: set[str] = set(moved_loads)
    for name in moved_loads:
        touched.update(flow.start for flow in instance.into[name])
        touched.update(flow.end for flow in instance.out[name])
    return [name for name in instance.movable if name in touched]
