"""Gives the same answer to the same evidence. Pure.

Rates differ a little from one analysis to the next. Where two placements are nearly as good, each
analysis could prefer another one. So a placement is proposed again as long as what it rests on has
not changed: no figure by more than `CLOSE`, and neither jobs, sites nor limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from speck.model.values import JsonObject
from speck.placement.instance import Instance
from speck.placement.measurements import load_name_of
from speck.placement.model import Kind
from speck.placement.problem import Question
from speck.placement.wiring import At, Wiring

CLOSE = 0.25
"""Figures that differ by this share or less are the same: a rate and the size of its records may
each differ by a tenth."""
IDLE = 0.05
"""Core-seconds per second; what is as busy or less is idle."""


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
                "work": load.work,
                "in": sum(flow.bytes_per_s for flow in instance.into[load.name]),
                "out": sum(flow.bytes_per_s for flow in instance.out[load.name]),
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


_MEASURED = {"work": IDLE, "in": 0.0, "out": 0.0, "uplink": 0.0, "busy": IDLE, "memory": 0.0}
"""Figures that may differ a little: those up to this are the same in any case."""


def is_same_evidence(before: JsonObject, now: JsonObject) -> bool:
    """Whether both, of `describe_evidence`, call for the same answer."""
    return before["limits"] == now["limits"] and all(
        before[noun].keys() == now[noun].keys()
        and all(_are_close(before[noun][name], now[noun][name]) for name in now[noun])
        for noun in ("jobs", "sites")
    )


def _are_close(before: JsonObject, now: JsonObject) -> bool:
    return all(
        _is_close(before[name], now[name], _MEASURED[name])
        if name in _MEASURED
        else before[name] == now[name]
        for name in now
    )


def _is_close(before: float | None, now: float | None, least: float) -> bool:
    if before is None or now is None:
        return before is now
    return abs(now - before) <= CLOSE * abs(before) + 1e-9 or max(before, now) <= least


def sites_of_links(wiring: Wiring, sites: Mapping[At, str]) -> dict[str, str]:
    """The site of the broker that carries what each job sends, by `job -> topic`."""
    return {f"{job.name} -> {job.sink.topic}": sites[job.sink] for job in wiring.jobs}


def find_target(question: Question, earlier: JsonObject) -> dict[str, str] | None:
    """Sites by load as in an earlier placement, if jobs and links are where they were when it was
    made, or where it wanted them; None otherwise."""
    wiring = question.wiring
    links = sites_of_links(wiring, {link: link.site for link in wiring.links})
    today = {"sites": {job.name: job.site for job in wiring.jobs}, "links": links}
    proposed = {name: earlier["proposed"][name] for name in today}
    if today not in (proposed, {name: earlier["today"][name] for name in today}):
        return None
    target = dict(proposed["sites"])
    for job in wiring.jobs:
        target[load_name_of(job.sink)] = proposed["links"][f"{job.name} -> {job.sink.topic}"]
    return target
