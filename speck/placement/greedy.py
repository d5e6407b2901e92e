"""The policy that follows the ranking: bytes saved between sites for each edge core-second."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from speck.placement.answer import answer
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.simple import all_cloud


@dataclass(frozen=True, slots=True)
class Greedy:
    """Policy `greedy`.

    Begins with everything in the cloud and moves what saves most bytes for each core-second that
    it takes (stateless jobs first on ties) as long as something is saved and limits are kept; what
    is saved is counted anew after each move. A load goes alone, together with all that leads to it,
    or together with what reads it. Never costs more than `all-cloud` where that keeps all limits;
    where limits are still passed in the end, what relieves them at the least price moves.
    """

    name: str = "greedy"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        return answer(self.name, instance, greedy(instance))


def greedy(instance: Instance) -> dict[str, str]:
    """Sites by load."""
    filling = Filling(instance, all_cloud(instance))
    _improve(filling)
    while filling.excess() > 0 and _relieve(filling):
        _improve(filling)
    return filling.sites


def _relieve(filling: Filling) -> bool:
    """Of moves by which limits are passed less, the one with the least price for it."""
    best: tuple[float, list[str], str] | None = None
    passed = set(filling.passed())
    for name in filling.instance.movable:
        if not passed & _sites_around(filling, name):
            continue
        for site in filling.instance.places:
            if site == filling.sites[name]:
                continue
            for group in _groups(filling, name, site):
                price = _price_of_relief(filling, group, site)
                if price is not None and (best is None or price < best[0]):
                    best = (price, group, site)
    if best is None:
        return False
    _put(filling, best[1], best[2])
    return True


def _sites_around(filling: Filling, name: str) -> set[str]:
    """Where a load is, and where its inputs come from: the sites that its move relieves."""
    into = filling.instance.into[name]
    return {filling.sites[name], *(filling.sites[flow.start] for flow in into)}


def _price_of_relief(filling: Filling, group: list[str], site: str) -> float | None:
    """Bytes a second more for all of a limit passed less; None when it is not passed less."""
    place = filling.instance.places[site]
    if not all(filling.instance.keeps_up(name, place) for name in group):
        return None
    saved, before = _saved(filling, group, site), filling.excess()
    was = _put(filling, group, site)
    gain = before - filling.excess()
    _put_back(filling, was)
    return -saved / gain if gain > 1e-6 else None


def _put(filling: Filling, group: list[str], site: str) -> dict[str, str]:
    """Move all of them; where they were."""
    was = {name: filling.sites[name] for name in group}
    for name in group:
        filling.put(name, site)
    return was


def _put_back(filling: Filling, was: dict[str, str]) -> None:
    for name, home in was.items():
        filling.put(name, home)


def _improve(filling: Filling) -> None:
    """Move what saves most for its work, until nothing saves anything."""
    version = dict.fromkeys(filling.instance.movable, 0)
    queue: list[tuple[float, int, str, str, int]] = []
    for name in filling.instance.movable:
        _propose(filling, name, 0, queue)
    while queue:
        _, _, name, site, seen = heapq.heappop(queue)
        if version[name] != seen or filling.sites[name] == site:
            continue
        moved: list[str] = []
        for group in _groups(filling, name, site):
            moved = moved or _move(filling, group, site)
        for other in _touched(filling.instance, moved):
            version[other] += 1
            _propose(filling, other, version[other], queue)


def _propose(
    filling: Filling, name: str, version: int, queue: list[tuple[float, int, str, str, int]]
) -> None:
    for site in filling.instance.places:
        if site == filling.sites[name]:
            continue
        score = max(_score(filling, group, site) for group in _groups(filling, name, site))
        if score > 0:
            stateful = int(filling.instance.loads[name].stateful is not False)
            heapq.heappush(queue, (-score, stateful, name, site, version))


def _score(filling: Filling, group: list[str], site: str) -> float:
    """Bytes a second saved for each core-second of the site's own cores."""
    saved = _saved(filling, group, site)
    pace = filling.instance.places[site].pace or 1.0
    work = sum(filling.instance.work[name] for name in group) / pace
    return saved / max(work, 1e-9)


def _saved(filling: Filling, group: list[str], site: str) -> float:
    was = {name: filling.sites[name] for name in group}
    instance, saved = filling.instance, 0.0
    flows = {id(f): f for name in group for f in (*instance.into[name], *instance.out[name])}
    for flow in flows.values():
        start, end = filling.sites[flow.start], filling.sites[flow.end]
        saved += instance.price(flow, start, end)
        saved -= instance.price(
            flow, site if flow.start in was else start, site if flow.end in was else end
        )
    return saved if abs(saved) > 1e-9 * sum(f.bytes_per_s for f in flows.values()) else 0.0


def _groups(filling: Filling, name: str, site: str) -> list[list[str]]:
    """What may move to `site` as one: the load with what leads to it, with its readers, alone."""
    leading, following = _leading(filling, name, site), _following(filling, name, site)
    return [group for group in (leading, following) if len(group) > 1] + [[name]]


def _following(filling: Filling, name: str, site: str) -> list[str]:
    return [name] + [
        flow.end
        for flow in filling.instance.out[name]
        if flow.end not in filling.instance.fixed and filling.sites[flow.end] != site
    ]


def _leading(filling: Filling, name: str, site: str) -> list[str]:
    group, waiting = [name], [name]
    while waiting:
        for flow in filling.instance.into[waiting.pop()]:
            start = flow.start
            if start in filling.instance.fixed or filling.sites[start] == site or start in group:
                continue
            group.append(start)
            waiting.append(start)
    return group


def _move(filling: Filling, group: list[str], site: str) -> list[str]:
    """Move all of them, if that saves something and passes no limit; what was moved."""
    if _saved(filling, group, site) <= 0:
        return []
    place = filling.instance.places[site]
    if not all(filling.instance.keeps_up(name, place) for name in group):
        return []
    before = filling.excess()
    was = _put(filling, group, site)
    if filling.excess() <= before + 1e-9:
        return group
    _put_back(filling, was)
    return []


def _touched(instance: Instance, moved: list[str]) -> Iterable[str]:
    """Movable loads for which the savings changed, with those that they lead to, in order."""
    found: set[str] = set(moved)
    for name in moved:
        found.update(flow.start for flow in instance.into[name])
        found.update(flow.end for flow in instance.out[name])
    return [name for name in instance.movable if name in found]
