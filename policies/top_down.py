"""Policy that fills the cloud first."""

from __future__ import annotations

from dataclasses import dataclass

from speck.placement.answer import make_placement
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Placement, Problem
from speck.placement.simple import put_first


@dataclass(frozen=True, slots=True)
class TopDown:
    """Policy `top-down`: fill the cloud first, against the order of the graph.

    From the sinks back, jobs go to the cloud while it has room; the others go down to the edge
    that sends most of their input.
    """

    name: str = "top-down"

    def place(self, problem: Problem) -> Placement:
        instance = Instance(problem)
        filling = Filling(instance)
        for name in reversed(instance.movable):
            home = _find_origin(instance, name)
            below = [instance.places[home]] if home is not None else []
            put_first(filling, name, instance.clouds + below + instance.edges)
        return make_placement(self.name, instance, filling.sites)


def _find_origin(instance: Instance, name: str) -> str | None:
    """Follow the largest input of each load upstream to the edge where it begins."""
    while instance.into[name]:
        name = max(instance.into[name], key=lambda flow: flow.bytes_per_s).start
        site = instance.fixed_sites.get(name)
        if site is not None and instance.places[site] in instance.edges:
            return site
    return None
