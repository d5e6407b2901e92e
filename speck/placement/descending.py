"""Policies that begin in the cloud and send jobs down to edges, one after another, in an order.

Neither looks back: a job that was sent to an edge stays there, and a limit that the cloud exceeds
is not corrected (`greedy` does both).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import CLOUD, Instance
from speck.placement.model import Kind, Load, Placement, Problem
from speck.placement.ranking import WHOLE, find_origins, rank_loads
from speck.placement.simple import place_in_cloud

PASSES_ON = 1.05
"""Up to so many records sent for each one taken count as one: rates of a window are measured, and a
job that passes on each record may end it with a few more sent than taken."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Policy `ranked`: the analyzer's ranking, carried out.

    Everything starts in the cloud. Down the ranking, each job that saves bytes at its edge goes
    there while the limits hold.
    """

    name: str = "ranked"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        moves = (
            (each.name, each.suggested_site)
            for each in rank_loads(instance)
            if each.suggested_site is not None
        )
        return make_placement(self.name, instance, _send_down(instance, moves))


@dataclass(frozen=True, slots=True)
class Lightweight:
    """Policy `lightweight`: the rule of flink-placement (https://github.com/atullal/flink-placement).

    Everything starts at the server. Stateless jobs that send no more records than they take (see
    `PASSES_ON`) and whose input comes from a single edge go to free slots of that edge, the
    lightest one first: the one with the highest true output rate. Bytes and latency play no part.
    What the project does for the operators of one job is done here for the jobs of a composition.
    """

    name: str = "lightweight"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        origins = find_origins(instance)
        lightest = sorted(
            (load for load in problem.loads if _is_light(instance, load)),
            key=lambda load: (-(_rate_output(instance, load) or 0.0), load.name),
        )
        moves = (
            (load.name, edge)
            for load in lightest
            for edge, share in origins[load.name].items()
            if edge is not None and share >= WHOLE
        )
        return make_placement(self.name, instance, _send_down(instance, moves))


def _rate_output(instance: Instance, load: Load) -> float | None:
    """Records that the job sends in a second of useful time: as measured, else by its cost."""
    if load.true_output_rate is not None:
        return load.true_output_rate
    selectivity = _find_selectivity(instance, load)
    return selectivity / load.core_s_per_record if load.core_s_per_record and selectivity else None


def _is_light(instance: Instance, load: Load) -> bool:
    selectivity = _find_selectivity(instance, load)
    is_selective = selectivity is not None and selectivity <= PASSES_ON
    return load.kind is Kind.JOB and load.stateful is False and is_selective


def _find_selectivity(instance: Instance, load: Load) -> float | None:
    """Output records by input records. Each of several outgoing flows carries all output."""
    if not load.rate:
        return None
    sent = max((flow.records_per_s for flow in instance.out[load.name]), default=0.0)
    return sent / load.rate


def _send_down(instance: Instance, moves: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Sites by load, after these moves from the cloud (load, edge) as far as the limits allow."""
    filling = Filling(instance, place_in_cloud(instance))
    for name, edge in moves:
        if name in instance.fixed_sites or instance.places[edge].tier == CLOUD:
            continue
        if instance.may_be_at(name, edge) and instance.keeps_up(name, instance.places[edge]):
            _move(filling, name, edge)
    return filling.sites


def _move(filling: Filling, name: str, edge: str) -> None:
    """Move the load if no excess grows; its topics follow where that keeps bytes at a site."""
    before, previous_sites = filling.total_excess(), dict(filling.sites)
    filling.put(name, edge)
    for topic in _list_topics(filling.instance, name):
        sites = [place.name for place in filling.instance.sites_for(topic)]
        costs = {site: filling.cost_of(topic, site) for site in sites}
        here = filling.sites[topic]
        best = min(costs, key=lambda site: (costs[site], site != here))
        if costs[best] < costs[here]:
            filling.put(topic, best)
    if filling.total_excess() > before + 1e-9:
        for moved, site in previous_sites.items():
            if filling.sites[moved] != site:
                filling.put(moved, site)


def _list_topics(instance: Instance, name: str) -> list[str]:
    """The movable topics that the load reads and writes."""
    ends = [flow.start for flow in instance.into[name]] + [flow.end for flow in instance.out[name]]
    return [
        end
        for end in dict.fromkeys(ends)
        if instance.loads[end].kind is Kind.TOPIC and end not in instance.fixed_sites
    ]
