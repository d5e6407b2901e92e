"""Today's placement beside a proposed one, as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from speck.model.values import JsonObject
from speck.placement.differences import explain_differences
from speck.placement.evaluate import Prediction, evaluate
from speck.placement.model import Placement
from speck.placement.problem import Question
from speck.placement.rendering import Layout
from speck.placement.scaling import Scale
from speck.placement.wiring import At, Wiring


def compare(
    today: Question,
    question: Question,
    answer: Placement,
    layout: Layout,
    first_notes: Sequence[str] = (),
) -> JsonObject:
    """Today's placement and the proposed one side by side, both predicted in the same way.

    `today` differs from `question`, which was answered, if jobs are scaled. `first_notes` come
    before the others.
    """
    before = evaluate(today.whole, today.today())
    after = evaluate(question.whole, {**question.today(), **layout.loads()})
    saved = before.wan_bytes_per_s - after.wan_bytes_per_s
    share = saved / before.wan_bytes_per_s if before.wan_bytes_per_s > 0 else None
    wiring = question.wiring
    jobs = {job.name: job.site for job in wiring.jobs}
    now = {link: link.site for link in wiring.links}
    moves = _moves(question, answer, layout)
    notes = (*first_notes, *question.notes, *after.notes, *answer.notes, *layout.notes)
    return {
        "today": {**_render(before, jobs), "links": _links(wiring, now)},
        "proposed": {
            **_render(after, layout.jobs),
            "links": _links(wiring, layout.links),
            "moves": moves,
        },
        "memory_available_bytes": {
            place.name: place.memory_bytes for place in question.whole.places
        },
        "rewired": _list_rewired(question.wiring, layout),
        "gain": {"wan_bytes_per_s": saved, "share": share},
        "reasons": {name: answer.reasons[name] for name in jobs if name in answer.reasons},
        "differences": explain_differences(
            question.problem, {**answer.sites, **layout.jobs}, answer.policy
        ),
        "notes": list(dict.fromkeys(notes)),
        "violations": list(after.violations),
        "doubts": dict(question.doubts),
        "unmeasured": list(question.unmeasured),
        "optimal": answer.optimal,
        "gap": answer.gap,
    }


def _render(prediction: Prediction, jobs: Mapping[str, str]) -> JsonObject:
    latency = prediction.latency_ms
    return {
        "sites": dict(jobs),
        "wan_bytes_per_s": prediction.wan_bytes_per_s,
        "utilisation": dict(prediction.utilisation),
        "cores": dict(prediction.cores),
        "memory_bytes": dict(prediction.memory),
        "in_rate": prediction.in_rate,
        "latency_ms": latency if latency is not None and math.isfinite(latency) else None,
        "max_rate": prediction.max_rate,
        "held_by": prediction.held_by,
        "violations": list(prediction.violations),
    }


def _links(wiring: Wiring, sites: Mapping[At, str]) -> dict[str, str]:
    """The site of the broker that carries what each job sends, by `job -> topic`."""
    return {f"{job.name} -> {job.sink.topic}": sites[job.sink] for job in wiring.jobs}


def _moves(question: Question, answer: Placement, layout: Layout) -> list[JsonObject]:
    loads = {load.name: load for load in question.whole.loads}
    return [
        {
            "job_name": job.name,
            "from": job.site,
            "to": layout.jobs[job.name],
            "reason": answer.reasons.get(job.name, ""),
            "stateful": loads[job.name].stateful,
            "state_bytes": loads[job.name].state_bytes,
        }
        for job in question.wiring.jobs
        if layout.jobs[job.name] != job.site
    ]


def render_scale(scale: Scale) -> JsonObject:
    return {
        "job_name": scale.job_name,
        "site": scale.site,
        "from": scale.today,
        "to": scale.proposed,
        "needed": scale.needed,
        "in_rate": scale.in_rate,
        "true_processing_rate": scale.true_processing_rate,
        "reason": scale.reason,
    }


def _list_rewired(wiring: Wiring, layout: Layout) -> list[JsonObject]:
    return [
        {"topic": link.topic, "from": link.site, "to": layout.links[link]}
        for link in wiring.links
        if layout.links[link] != link.site
    ]
