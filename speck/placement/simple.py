"""Policies to compare with: all in the cloud, all at the edges, and filled from one end."""

from __future__ import annotations

from dataclasses import dataclass

from speck.placement.answer import answer
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Place, Placement, Problem


@dataclass(frozen=True, slots=True)
class AllCloud:
    """Policy `all-cloud`: every job at the first cloud site that has room, else at the first."""

    name: str = "all-cloud"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        return answer(self.name, instance, all_cloud(instance))


@dataclass(frozen=True, slots=True)
class AllEdge:
    """Policy `all-edge`: every job at an edge.

    Along the graph: at the edge that most of its input comes from; when that is full, at the one
    with the most capacity left; when all are full, at the first, which the violations tell.
    """

    name: str = "all-edge"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            home = _edge_of(filling, name)
            rest = sorted(instance.edges, key=lambda place: -_left(filling, place))
            _put_first(filling, name, ([home] if home else []) + rest)
        return answer(self.name, instance, filling.sites)


@dataclass(frozen=True, slots=True)
class BottomUp:
    """Policy `bottom-up`: the edges are filled first, along the graph.

    From the sources on, a job stays at the edge that all its inputs come from, while that has
    room; one whose inputs come from several sites, or for which there is no room, climbs to the
    cloud, their common ancestor ("edge-ward" placement: Gupta et al., iFogSim, 2017, section 4.3;
    here the tree has two levels).
    """

    name: str = "bottom-up"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in instance.movable:
            origins = {filling.sites[flow.start] for flow in instance.into[name]}
            below = [place for place in instance.edges if origins == {place.name}]
            _put_first(filling, name, below + instance.clouds + instance.edges)
        return answer(self.name, instance, filling.sites)


@dataclass(frozen=True, slots=True)
class TopDown:
    """Policy `top-down`: the cloud is filled first, against the graph.

    From the sinks back, a job is put in the cloud while that has room; what finds none goes down,
    to the edge that most of what it reads comes from.
    """

    name: str = "top-down"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in reversed(instance.movable):
            home = _origin(instance, name)
            below = [instance.places[home]] if home is not None else []
            _put_first(filling, name, instance.clouds + below + instance.edges)
        return answer(self.name, instance, filling.sites)


def all_cloud(instance: Instance) -> dict[str, str]:
    """Sites by load; edges only where there is no cloud."""
    filling = Filling(instance)
    for name in instance.movable:
        _put_first(filling, name, instance.clouds or instance.edges)
    return filling.sites


def _put_first(filling: Filling, name: str, places: list[Place]) -> None:
    """At the first that has room, else at the first where the job keeps up, else at the first."""
    places = places or list(filling.instance.places.values())
    chosen = next((place for place in places if filling.fits(name, place.name)), None)
    if chosen is None:
        able = (place for place in places if filling.instance.keeps_up(name, place))
        chosen = next(able, places[0])
    filling.put(name, chosen.name)


def _edge_of(filling: Filling, name: str) -> Place | None:
    flow = filling.main_input(name)
    if flow is None:
        return None
    place = filling.instance.places[filling.sites[flow.start]]
    return place if place in filling.instance.edges else None


def _left(filling: Filling, place: Place) -> float:
    return filling.instance.room(place) - filling.work[place.name]


def _origin(instance: Instance, name: str) -> str | None:
    """The edge where the largest input of a load begins, following the largest upwards."""
    while instance.into[name]:
        name = max(instance.into[name], key=lambda flow: flow.bytes_per_s).start
        site = instance.fixed.get(name)
        if site is not None and instance.places[site] in instance.edges:
            return site
    return None
