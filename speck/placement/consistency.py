"""Gives the same answer to the same evidence. Pure.

Rates differ a little from one analysis to the next. Where two placements are nearly as good, each
analysis could prefer another one. So a placement is proposed again as long as what it rests on has
not changed: no measured figure by more than `CLOSE`, and neither jobs, sites nor limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from speck.model.values import JsonObject
from speck.placement.instance import Instance
from speck.placement.measurements import load_name_of
from speck.placement.model import Kind, Load
from speck.placement.problem import Question
from speck.placement.wiring import At, Wiring

CLOSE = 0.25
"""Measured figures that differ by this share or less are the same: records and bytes of each end of
a job may differ by a tenth each, and so may what it takes and what it sends."""
FAR = 1.0
"""Likewise of figures that are computed from measured ones all along the graph, whose differences
multiply."""
IDLE = 0.05
"""Core-seconds per second; what is as busy or less is idle."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A placement that was made before: what it rested on, the sites of jobs and links then
    (`today`) and as it proposed them, and what else is said of its answer."""

    id: str
    evidence: Mapping[str, Any]
    today: tuple[Mapping[str, str], Mapping[str, str]]
    proposed: tuple[Mapping[str, str], Mapping[str, str]]
    violations: tuple[str, ...]
    repeats: str | None
    optimal: bool
    gap: float | None
    dropped: tuple[str, ...]


def describe_evidence(question: Question) -> JsonObject:
    """What an answer rests on, as plain data. It is the same before the answer is carried out and
    after: what names a site or a link is left out."""
    whole = question.whole
    instance = Instance(whole)
    return {
        "limits": asdict(whole.limits),
        "jobs": {
            load.name: {
                "slots": load.slots,
                "pinned": load.pinned,
                "stateful": load.stateful,
                "barred": sorted(load.barred),
                **_describe_figures(instance, load),
            }
            for load in whole.loads
            if load.kind is Kind.JOB
        },
        "sites": {
            place.name: {
                "tier": place.tier,
                "cores": place.cores,
                "core_speed": place.core_speed,
                "latency_ms": place.latency_ms,
                "slots": place.slots,
                "uplink": place.uplink,
                "busy": place.busy,
                "memory": place.memory_bytes,
                "is_closed": place.name in question.closed,
            }
            for place in whole.places
        },
    }


def _describe_figures(instance: Instance, load: Load) -> JsonObject:
    """What was measured of a job, and what follows for it from the jobs before it."""
    into, out = instance.into[load.name], instance.out[load.name]
    (taken, bytes_in), (sent, bytes_out) = (
        (sum(flow.records_per_s for flow in flows), sum(flow.bytes_per_s for flow in flows))
        for flows in (into, out)
    )
    is_entry = not any(
        instance.loads[each.start].kind is Kind.JOB
        for flow in into
        for each in instance.into[flow.start]
    )
    return {
        "entering": taken if is_entry else None,
        "selectivity": sent / taken if taken else None,
        "record_in": bytes_in / taken if taken else None,
        "record_out": bytes_out / sent if sent else None,
        "cost": load.core_s_per_record,
        "work": load.work,
        "in": bytes_in,
        "out": bytes_out,
    }


_SHARES = dict.fromkeys(("entering", "selectivity", "record_in", "record_out", "cost"), CLOSE)
_SHARES |= {"uplink": CLOSE, "busy": CLOSE, "memory": CLOSE, "work": FAR, "in": FAR, "out": FAR}
"""Figures that may differ a little, and by how much."""


def is_same_evidence(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether both, of `describe_evidence`, call for the same answer."""
    return before["limits"] == now["limits"] and all(
        before[noun].keys() == now[noun].keys()
        and all(_are_close(before[noun][name], now[noun][name]) for name in now[noun])
        for noun in ("jobs", "sites")
    )


def _are_close(before: JsonObject, now: JsonObject) -> bool:
    is_idle = max(before.get("work") or 0.0, now.get("work") or 0.0) <= IDLE
    names = [name for name in now if name != "cost" or not is_idle]
    return all(
        _is_close(name, before[name], now[name]) if name in _SHARES else before[name] == now[name]
        for name in names
    )


def _is_close(name: str, before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is now
    least = IDLE if name in ("work", "busy") else 0.0
    nearer = min(abs(before), abs(now))
    return abs(now - before) <= _SHARES[name] * nearer + 1e-9 or max(before, now) <= least


def sites_of_links(wiring: Wiring, sites: Mapping[At, str]) -> dict[str, str]:
    """The site of the broker that carries what each job sends, by `job -> topic`."""
    return {f"{job.name} -> {job.sink.topic}": sites[job.sink] for job in wiring.jobs}


def find_target(question: Question, earlier: Earlier) -> dict[str, str] | None:
    """Sites by load as in an earlier placement, if jobs and links are where they were when it was
    made, or where it wanted them; None otherwise."""
    wiring = question.wiring
    links = sites_of_links(wiring, {link: link.site for link in wiring.links})
    today = {job.name: job.site for job in wiring.jobs}, links
    if today not in (earlier.today, earlier.proposed):
        return None
    sites, wanted_links = earlier.proposed
    target = dict(sites)
    for job in wiring.jobs:
        target[load_name_of(job.sink)] = wanted_links[f"{job.name} -> {job.sink.topic}"]
    return target
