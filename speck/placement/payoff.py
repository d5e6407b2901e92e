"""Takes back the moves of a placement that do not pay for themselves, whatever the policy.

A move pays if it saves more bytes than it costs (`Instance.price_of_move`), even if every rate is
wrong by `ERROR`. So a placement that was carried out is not undone by the next analysis of the same
rates. Moves without which a limit would be exceeded stay: limits come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import le

from speck.placement.evaluate import find_longest_path
from speck.placement.filling import Filling
from speck.placement.instance import TOLERANCE, Instance
from speck.placement.model import Kind

ERROR = 0.1
"""The share by which a rate may be wrong."""

Group = tuple[str, ...]


def drop_moves(instance: Instance, sites: Mapping[str, str]) -> dict[str, str]:
    """Sites by load, without the moves that do not pay.

    Loads are judged alone and together with those that move beside them, since what one saves may
    depend on the others.
    """
    filling = Filling(instance, sites)
    if not any(load.silence_s for load in instance.loads.values()):
        return filling.sites  # moves cost nothing
    while _drop_worst(filling):
        pass
    return filling.sites


def _drop_worst(filling: Filling) -> bool:
    """Take back the groups that do not pay, the worst first; False if there is none."""
    groups = {(compute_net(filling, group), group) for group in set(_list_groups(filling))}
    dropped = False
    for net, group in sorted(groups):
        if net > 0:
            break
        # those before it may have changed what it saves
        is_moved = all(_is_moved(filling, name) for name in group)
        if is_moved and compute_net(filling, group) <= 0 and _take_back(filling, group):
            dropped = True
    return dropped


def compute_net(filling: Filling, group: Group) -> float:
    """Bytes per second that the group's moves save beyond what they cost, with every rate wrong to
    their disadvantage."""
    instance, members = filling.instance, set(group)
    flows = {id(f): f for name in group for f in (*instance.into[name], *instance.out[name])}
    saved = added = 0.0
    for flow in flows.values():
        start, end = filling.sites[flow.start], filling.sites[flow.end]
        former_start = instance.loads[flow.start].site if flow.start in members else start
        former_end = instance.loads[flow.end].site if flow.end in members else end
        change = instance.price_of(flow, former_start or start, former_end or end)
        change -= instance.price_of(flow, start, end)
        saved, added = saved + max(0.0, change), added + max(0.0, -change)
    cost = sum(instance.price_of_move(name) for name in group)
    return (1 - ERROR) * saved - (1 + ERROR) * added - cost


def _is_moved(filling: Filling, name: str) -> bool:
    """Whether the load is not where it is now, and could stay there."""
    instance = filling.instance
    site = instance.loads[name].site
    is_able = name not in instance.fixed_sites and site in instance.places
    return is_able and filling.sites[name] != site


def _list_groups(filling: Filling) -> Iterator[Group]:
    """Each moved load: alone, with its topics, with all moved ones before or after it, with all
    that are joined to it."""
    instance = filling.instance
    moved = {name for name in instance.movable if _is_moved(filling, name)}
    before = {x: [f.start for f in instance.into[x] if f.start in moved] for x in moved}
    after = {x: [f.end for f in instance.out[x] if f.end in moved] for x in moved}
    beside = {name: [*before[name], *after[name]] for name in moved}
    for name in sorted(moved):
        yield (name,)
        topics = {x for x in beside[name] if instance.loads[x].kind is Kind.TOPIC}
        yield tuple(sorted({name, *topics}))
        for neighbours in (before, after, beside):
            yield _reach(name, neighbours)


def _reach(name: str, neighbours: Mapping[str, list[str]]) -> Group:
    reached, waiting = {name}, [name]
    while waiting:
        fresh = [each for each in neighbours[waiting.pop()] if each not in reached]
        reached.update(fresh)
        waiting.extend(fresh)
    return tuple(sorted(reached))


def _take_back(filling: Filling, group: Group) -> bool:
    """Leave the group where it is now, unless a limit would be exceeded by more."""
    instance = filling.instance
    proposed = {name: filling.sites[name] for name in group}
    excess, memory, latency = _measure(filling)
    for name in group:
        filling.put(name, instance.loads[name].site or proposed[name])
    keeps_up = all(instance.keeps_up(name, instance.places[filling.sites[name]]) for name in group)
    allowed = max(latency, (instance.limits.max_latency_ms or 0.0) * (1 + TOLERANCE))
    limits = (excess + 1e-9, memory + 1e-9, allowed)
    if keeps_up and all(map(le, _measure(filling), limits)):
        return True
    for name, site in proposed.items():
        filling.put(name, site)
    return False


def _measure(filling: Filling) -> tuple[float, float, float]:
    """The excess over all limits, that of memory, and the latency (ms) if that is limited."""
    instance = filling.instance
    is_limited = instance.limits.max_latency_ms is not None
    latency = find_longest_path(instance, filling.sites)[0] if is_limited else 0.0
    memory = sum(map(filling.memory_excess_of, instance.places))
    return filling.total_excess(), memory, latency
