"""From sites by load to an answer: figures, violations, and a reason for each job in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speck.placement.evaluate import predict
from speck.placement.instance import Instance
from speck.placement.model import Kind, Placement


def answer(
    policy: str,
    instance: Instance,
    sites: Mapping[str, str],
    *,
    notes: Sequence[str] = (),
    optimal: bool = False,
    gap: float | None = None,
) -> Placement:
    """The placement of a policy. `optimal` and `gap` are the policy's own word."""
    found = predict(instance, sites)
    ordered = {load.name: sites[load.name] for load in instance.problem.loads}
    return Placement(
        policy=policy,
        sites=ordered,
        reasons={name: reason(instance, ordered, name) for name in ordered},
        notes=(*notes, *found.notes),
        violations=found.violations,
        objective=found.objective,
        optimal=optimal and not found.violations,
        gap=None if found.violations else gap,
    )


def reason(instance: Instance, sites: Mapping[str, str], name: str) -> str:
    """Why a load is where it is, beside where it was (or beside the cloud, if nowhere)."""
    load, site = instance.loads[name], sites[name]
    if name in instance.fixed:
        return f"stays at {site}: {instance.why[name]}"
    if load.site == site:
        return f"stays at {site}"
    if load.site in instance.places:
        other, was = load.site, f"moves from {load.site} to {site}"
    else:
        other, was = (instance.clouds or instance.edges)[0].name, f"begins at {site}"
    saved = _cost_at(instance, sites, name, other or site) - _cost_at(instance, sites, name, site)
    if load.kind is Kind.TOPIC:
        was = was.replace("moves", "its broker moves").replace("begins", "its broker is")
    if site == other:
        return was
    if saved == 0:
        return f"{was}: as many bytes between sites as at {other}"
    more = "more" if saved > 0 else "fewer"
    alone = f"{abs(saved):.0f} bytes/s {more} would cross if it alone were at {other}"
    return f"{was}: {alone}" if saved > 0 else f"{was}, though {alone}"


def _cost_at(instance: Instance, sites: Mapping[str, str], name: str, site: str) -> float:
    """What the load's own flows cost when it alone is at `site`."""
    into = sum(instance.price(flow, sites[flow.start], site) for flow in instance.into[name])
    return into + sum(instance.price(flow, site, sites[flow.end]) for flow in instance.out[name])
