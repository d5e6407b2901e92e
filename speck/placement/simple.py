"""Baseline policies: all where they are, in the cloud, at the edges, and filling from the edges."""

from __future__ import annotations

from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Place, Placement, Problem


@dataclass(frozen=True, slots=True)
class Stay:
    """Policy `stay`: every job where it is; what runs nowhere yet goes to the cloud.

    The one policy that moves nothing even where memory is exceeded: it reports that.
    """

    name: str = "stay"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            site = instance.loads[name].site
            here = [instance.places[site]] if site in instance.places else instance.clouds
            filling.put(name, here[0].name if here else instance.edges[0].name)
        return make_placement(self.name, instance, filling.sites, moves_for_memory=False)


@dataclass(frozen=True, slots=True)
class AllCloud:
    """Policy `all-cloud`: every job at the first cloud site with room, else at the first one."""

    name: str = "all-cloud"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        return make_placement(self.name, instance, place_in_cloud(instance))


@dataclass(frozen=True, slots=True)
class AllEdge:
    """Policy `all-edge`: every job at an edge.

    In the order of the graph, each job goes to the edge that sends most of its input; if that is
    full, to the edge with the most free capacity; if all are full, to the first one, which shows
    up as a violation.
    """

    name: str = "all-edge"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            home = _find_edge(filling, name)
            rest = sorted(instance.edges, key=lambda place: -_capacity_left_at(filling, place))
            put_first(filling, name, ([home] if home else []) + rest)
        return make_placement(self.name, instance, filling.sites)


@dataclass(frozen=True, slots=True)
class BottomUp:
    """Policy `bottom-up`: fill the edges first, in the order of the graph.

    From the sources on, a job is placed at the edge that all its inputs come from, while that has
    room. A job with inputs from several sites, or without room, moves up to the cloud, their
    common ancestor ("edge-ward" placement: Gupta et al., iFogSim, 2017, section 4.3;
    here the tree has two levels).
    """

    name: str = "bottom-up"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            origins = {filling.sites[flow.start] for flow in instance.into[name]}
            below = [place for place in instance.edges if origins == {place.name}]
            put_first(filling, name, below + instance.clouds + instance.edges)
        return make_placement(self.name, instance, filling.sites)


def place_in_cloud(instance: Instance) -> dict[str, str]:
    """Place every load in the cloud; at edges only if there is no cloud."""
    filling = Filling(instance)
    for name in instance.movable:
        put_first(filling, name, instance.clouds or instance.edges)
    return filling.sites


def put_first(filling: Filling, name: str, places: list[Place]) -> None:
    """Put the load at the first place with room, else where it keeps up, else at the first."""
    instance = filling.instance
    places = [place for place in places if instance.may_be_at(name, place.name)]
    places = places or _list_sites(instance, name)
    chosen = next((place for place in places if filling.fits(name, place.name)), None)
    if chosen is None:
        able = (place for place in places if instance.keeps_up(name, place))
        chosen = next(able, places[0])
    filling.put(name, chosen.name)


def _list_sites(instance: Instance, name: str) -> list[Place]:
    """All sites where the load may be, its own one first."""
    here = instance.loads[name].site
    return sorted(instance.sites_for(name), key=lambda place: place.name != here)


def _find_edge(filling: Filling, name: str) -> Place | None:
    flow = filling.find_main_input(name)
    if flow is None:
        return None
    place = filling.instance.places[filling.sites[flow.start]]
    return place if place in filling.instance.edges else None


def _capacity_left_at(filling: Filling, place: Place) -> float:
    return filling.instance.room_at(place) - filling.work[place.name]
