"""Builds a policy's answer from sites by load: figures, violations, and a reason for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speck.placement.evaluate import predict
from speck.placement.evidence import undo_moves_without_evidence
from speck.placement.instance import Instance
from speck.placement.memory import keep_memory
from speck.placement.model import Kind, Placement
from speck.placement.payoff import drop_moves

KEPT_NOTE = "they stay, since what their new site or its uplink carries was not measured"


def make_placement(
    policy: str,
    instance: Instance,
    sites: Mapping[str, str],
    *,
    notes: Sequence[str] = (),
    optimal: bool = False,
    gap: float | None = None,
    moves_for_memory: bool = True,
) -> Placement:
    """The placement that a policy returns. `optimal` and `gap` are the policy's own claims.

    Jobs that a site has no memory for are moved (`keep_memory`), unless `moves_for_memory` is
    false. Moves onto what is closed are undone (`undo_moves_without_evidence`): a policy that knows
    nothing of evidence keeps to it, too. Then moves that do not pay for themselves are taken back
    (`drop_moves`).
    """
    if moves_for_memory:
        new_sites = keep_memory(instance, sites)
        moved_loads = _list_changes(instance, sites, new_sites)
        if moved_loads:
            sites, optimal, gap = new_sites, False, None
            notes = (*notes, f"moved for lack of memory at their site: {', '.join(moved_loads)}")
    new_sites = undo_moves_without_evidence(instance, sites)
    kept_loads = _list_changes(instance, sites, new_sites)
    if kept_loads:
        sites, optimal, gap = new_sites, False, None
        notes = (*notes, f"{KEPT_NOTE}: {', '.join(kept_loads)}")
    # a move that is taken back may have kept something off a closed uplink
    paying_sites = undo_moves_without_evidence(instance, drop_moves(instance, sites))
    dropped = tuple(_list_changes(instance, sites, paying_sites))
    if dropped:
        sites, optimal, gap = paying_sites, False, None
    prediction = predict(instance, sites)
    sites_by_load = {load.name: sites[load.name] for load in instance.problem.loads}
    return Placement(
        policy=policy,
        sites=sites_by_load,
        reasons={name: explain(instance, sites_by_load, name) for name in sites_by_load},
        notes=(*notes, *prediction.notes),
        violations=prediction.violations,
        objective=prediction.objective,
        optimal=optimal and not prediction.violations,
        gap=None if prediction.violations else gap,
        dropped=dropped,
    )


def _list_changes(
    instance: Instance, before: Mapping[str, str], after: Mapping[str, str]
) -> list[str]:
    return [name for name in instance.movable if before[name] != after[name]]


def explain(instance: Instance, sites: Mapping[str, str], name: str) -> str:
    """Why a load is placed where it is, compared with its current site.

    A load that runs nowhere yet is compared with the cloud."""
    load, site = instance.loads[name], sites[name]
    if name in instance.fixed_sites:
        return f"stays at {site}: {instance.why[name]}"
    if load.site == site:
        return f"stays at {site}"
    if load.site in instance.places:
        other, was = load.site, f"moves from {load.site} to {site}"
    else:
        other, was = (instance.clouds or instance.edges)[0].name, f"begins at {site}"
    saved = _compute_cost(instance, sites, name, other or site) - _compute_cost(
        instance, sites, name, site
    )
    if load.kind is Kind.TOPIC:
        was = was.replace("moves", "its broker moves").replace("begins", "its broker is")
    if site == other:
        return was
    if saved == 0:
        return f"{was}: as many bytes between sites as at {other}"
    more = "more" if saved > 0 else "fewer"
    noun = "topic" if load.kind is Kind.TOPIC else "job"
    alone = (
        f"{abs(saved):.0f} bytes/s {more} would be sent between sites if only this {noun} were at"
        f" {other}"
    )
    return f"{was}: {alone}" if saved > 0 else f"{was}, though {alone}"


def _compute_cost(instance: Instance, sites: Mapping[str, str], name: str, site: str) -> float:
    """The cost of the load's own flows if only this load is at `site`."""
    into = sum(instance.price_of(flow, sites[flow.start], site) for flow in instance.into[name])
    return into + sum(instance.price_of(flow, site, sites[flow.end]) for flow in instance.out[name])
