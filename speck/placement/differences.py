"""Says, job by job, why a placement differs from the analyzer's ranking. Pure.

The ranking rates each job by itself, as if everything upstream of it were at its edge already, and
knows no limits. A placement is of all jobs together. So they may differ, and a user who reads both
should find the reason beside the job.
"""

from __future__ import annotations

from speck.placement.evaluate import find_longest_path, list_site_violations
from speck.placement.filling import Filling
from speck.placement.instance import CLOUD, TOLERANCE
from speck.placement.model import Candidate


def explain_difference(filling: Filling, candidate: Candidate, policy: str) -> str | None:
    """Why a job is not where the ranking suggests; None if it is there.

    `filling`: the placement, of every load of the problem.
    """
    instance, name, edge = filling.instance, candidate.name, candidate.suggested_site
    site = filling.sites[name]
    if edge is not None:
        if site == edge:
            return None
        return f"the ranking suggests {edge}, but {_explain_absence(filling, name, edge, policy)}"
    if instance.places[site].tier == CLOUD or not instance.clouds:
        return None
    objection = candidate.against[0] if candidate.against else "it would save no bytes there"
    cloud = instance.clouds[0].name
    why = _explain_absence(filling, name, cloud, policy)
    return f"the ranking suggests the cloud ({objection}), but {why}"


def _explain_absence(filling: Filling, name: str, site: str, policy: str) -> str:
    """Why the load is not at `site`."""
    instance = filling.instance
    if name in instance.fixed_sites:
        return instance.why[name]
    if site not in instance.places:
        return f"{site} is not a registered site"
    if not instance.may_be_at(name, site):
        if (why := instance.loads[name].barred.get(site)) is not None:
            return f"{site} cannot run it: {why}"
        return f"{site} takes no more load: {instance.places[site].closed}"
    exceeded = _find_exceeded_limit(filling, name, site)
    if exceeded is not None:
        return f"with it at {site}, {exceeded}"
    if policy == "stay":
        return "this policy moves nothing"
    here, there = filling.cost_of(name, filling.sites[name]), filling.cost_of(name, site)
    if abs(there - here) <= TOLERANCE * max(here, there):
        return "as many bytes would be sent between sites if only this job were there"
    if there > here:
        why = _name_neighbours(filling, name, site)
        return f"more bytes would be sent between sites if only this job were there{why}"
    return f"the policy {policy} does not see that fewer bytes would be sent between sites"


def _find_exceeded_limit(filling: Filling, name: str, site: str) -> str | None:
    """The first limit that the load would exceed at `site`, in words; None if there is none."""
    instance = filling.instance
    if not instance.keeps_up(name, instance.places[site]):
        return "it could not keep up with its input"
    previous_site = filling.sites[name]
    latency_before, _ = find_longest_path(instance, filling.sites)
    before = {place: filling.excess_of(place) for place in instance.places}
    filling.put(name, site)
    exceeded = None
    for place in instance.places:
        if filling.excess_of(place) > before[place] + 1e-9:
            violation = next(list_site_violations(instance, place, filling.sums_of(place)), "")
            exceeded = violation.partition(": ")[2] or None  # the sentence without its heading
            break
    if exceeded is None and instance.limits.max_latency_ms is not None:
        latency, _ = find_longest_path(instance, filling.sites)
        allowed_ms = max(instance.limits.max_latency_ms, latency_before)
        if latency > allowed_ms * (1 + TOLERANCE):
            exceeded = (
                f"the longest path would take {latency:.1f} ms, "
                f"{instance.limits.max_latency_ms:g} ms is allowed"
            )
    filling.put(name, previous_site)
    return exceeded


def _name_neighbours(filling: Filling, name: str, site: str) -> str:
    """The load that exchanges most bytes with this one and is not at `site`."""
    ends = [(flow.bytes_per_s, flow.start, "comes from") for flow in filling.instance.into[name]]
    ends += [(flow.bytes_per_s, flow.end, "goes to") for flow in filling.instance.out[name]]
    elsewhere = [end for end in ends if filling.sites[end[1]] != site]
    if not elsewhere:
        return ""
    _, other, verb = max(elsewhere, key=lambda end: end[0])
    what = "its input" if verb == "comes from" else "its output"
    return f": {what} {verb} {filling.sites[other]}"
