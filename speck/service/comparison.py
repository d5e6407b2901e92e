"""Today's placement beside a proposed one, as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from speck.model.values import JsonObject
from speck.placement.consistency import sites_of_links
from speck.placement.evaluate import Prediction, evaluate
from speck.placement.instance import Instance
from speck.placement.move_costs import silences_to_json
from speck.placement.problem import Question
from speck.placement.proposal import Proposal, list_restarted
from speck.placement.reasons import Row, describe_jobs
from speck.placement.rendering import Layout
from speck.placement.scaling import Scale
from speck.placement.wiring import Wiring


def compare(
    today: Question,
    proposal: Proposal,
    reports: Mapping[str, JsonObject],
    first_notes: Sequence[str] = (),
) -> JsonObject:
    """Today's placement and the proposed one side by side, both predicted in the same way.

    `today` differs from the question that was answered if jobs are scaled. `reports`: see
    `speck.placement.reasons.describe_jobs`. `first_notes` come before the others.
    """
    question, answer, layout = proposal.question, proposal.answer, proposal.layout
    before = evaluate(today.whole, today.today())
    after = evaluate(question.whole, {**question.today(), **layout.loads()})
    rows = describe_jobs(proposal, reports)
    wiring = question.wiring
    jobs = {job.name: job.site for job in wiring.jobs}
    now = {link: link.site for link in wiring.links}
    notes = (*first_notes, *question.notes, *after.notes, *answer.notes, *layout.notes)
    return {
        "today": {**_render(before, jobs), "links": sites_of_links(wiring, now)},
        "proposed": {
            **_render(after, layout.jobs),
            "links": sites_of_links(wiring, layout.links),
            "moves": [_describe_move(question, row) for row in rows if row.site != row.proposed],
        },
        "memory_available_bytes": {
            place.name: place.memory_bytes for place in question.whole.places
        },
        "rewired": _list_rewired(question.wiring, layout),
        "restarted": list_restarted(question, layout),
        "gain": _weigh(question, layout, before, after),
        "horizon_s": question.whole.limits.horizon_s,
        "silences": silences_to_json(question.silences),
        "jobs": [{**asdict(row), "why": list(row.why)} for row in rows],
        "dropped": [name for name in answer.dropped if name in jobs],
        "notes": list(dict.fromkeys(notes)),
        "violations": list(after.violations),
        "doubts": dict(question.doubts),
        "unmeasured": list(question.unmeasured),
        "optimal": answer.optimal,
        "gap": answer.gap,
        "evidence": proposal.evidence,
        "repeats": proposal.repeats,
    }


def _weigh(question: Question, layout: Layout, before: Prediction, after: Prediction) -> JsonObject:
    """What the placement saves, what its moves and restarts cost, and after how many seconds they
    have saved as much."""
    saved = before.wan_bytes_per_s - after.wan_bytes_per_s
    instance = Instance(question.whole)
    cost = sum(map(instance.restart_bytes_of, list_restarted(question, layout)))
    cost += sum(
        instance.move_bytes_of(job.name)
        for job in question.wiring.jobs
        if layout.jobs[job.name] != job.site
    )
    return {
        "wan_bytes_per_s": saved,
        "share": saved / before.wan_bytes_per_s if before.wan_bytes_per_s > 0 else None,
        "cost_bytes": cost,
        "net_bytes_per_s": saved - cost / question.whole.limits.horizon_s,
        "break_even_s": cost / saved if saved > 0 else None,
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


def _describe_move(question: Question, row: Row) -> JsonObject:
    load = next(load for load in question.whole.loads if load.name == row.job_name)
    return {
        "job_name": row.job_name,
        "from": row.site,
        "to": row.proposed,
        "reason": "; ".join(row.why),
        "stateful": load.stateful,
        "state_bytes": load.state_bytes,
        "silence_s": load.silence_s,
        "saved_bytes_per_s": row.saved_bytes_per_s,
        "cost_bytes": row.cost_bytes,
        "break_even_s": row.break_even_s,
    }


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
