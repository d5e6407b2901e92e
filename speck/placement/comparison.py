"""Today's placement beside a proposed one. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from speck.model.analysis_result import AnalysisResult
from speck.model.values import JsonObject
from speck.placement.consistency import sites_of_links
from speck.placement.evaluate import Prediction, evaluate
from speck.placement.instance import Instance
from speck.placement.problem import Question
from speck.placement.proposal import Proposal, list_restarted
from speck.placement.reasons import PlacedJob, describe_jobs
from speck.placement.record import Comparison, Gain, Move, ProposedSide, Rewired, Side
from speck.placement.rendering import Layout


def compare(
    today: Question,
    proposal: Proposal,
    composition: str,
    analysis: AnalysisResult,
    first_notes: Sequence[str] = (),
) -> Comparison:
    """Today's placement and the proposed one side by side, both predicted in the same way.

    `today` differs from the question that was answered if jobs are scaled. The jobs are of
    the composition; `first_notes` come before the others.
    """
    question, answer, layout = proposal.question, proposal.answer, proposal.layout
    before = evaluate(today.whole, today.today())
    after = evaluate(question.whole, {**question.today(), **layout.loads()})
    rows = tuple(describe_jobs(proposal, composition, analysis))
    jobs = {job.name: job.site for job in question.wiring.jobs}
    notes = (*first_notes, *question.notes, *after.notes, *answer.notes, *layout.notes)
    return Comparison(
        gain=_weigh(question, layout, before, after),
        violations=after.violations,
        today=_describe_today(question, before),
        proposed=_describe_proposed(question, layout, after, rows),
        memory_available_bytes={place.name: place.memory_bytes for place in question.whole.places},
        rewired=_list_rewired(question, layout),
        restarted=tuple(list_restarted(question, layout)),
        horizon_s=question.whole.limits.horizon_s,
        silences=question.silences,
        dropped=tuple(name for name in answer.dropped if name in jobs),
        evidence=proposal.evidence,
        repeats=proposal.repeats,
        jobs=rows,
        notes=tuple(dict.fromkeys(notes)),
        doubts=dict(question.doubts),
        unmeasured=tuple(question.unmeasured),
        optimal=answer.optimal,
        gap=answer.gap,
    )


def _weigh(question: Question, layout: Layout, before: Prediction, after: Prediction) -> Gain:
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
    return Gain(
        wan_bytes_per_s=saved,
        share=saved / before.wan_bytes_per_s if before.wan_bytes_per_s > 0 else None,
        cost_bytes=cost,
        net_bytes_per_s=saved - cost / question.whole.limits.horizon_s,
        break_even_s=cost / saved if saved > 0 else None,
    )


def _describe_today(question: Question, prediction: Prediction) -> Side:
    wiring = question.wiring
    links = sites_of_links(wiring, {link: link.site for link in wiring.links})
    return Side(**_figures(prediction, {job.name: job.site for job in wiring.jobs}), links=links)


def _describe_proposed(
    question: Question, layout: Layout, prediction: Prediction, rows: Sequence[PlacedJob]
) -> ProposedSide:
    moves = tuple(_describe_move(question, row) for row in rows if row.site != row.proposed)
    links = sites_of_links(question.wiring, layout.links)
    return ProposedSide(**_figures(prediction, layout.jobs), links=links, moves=moves)


def _figures(prediction: Prediction, jobs: Mapping[str, str]) -> JsonObject:
    """The fields of a `Side`, without its links."""
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
        "violations": tuple(prediction.violations),
    }


def _describe_move(question: Question, row: PlacedJob) -> Move:
    load = next(load for load in question.whole.loads if load.name == row.job_name)
    return Move(
        job_name=row.job_name,
        source=row.site,
        target=row.proposed,
        reason="; ".join(row.why),
        stateful=load.stateful,
        state_bytes=load.state_bytes,
        silence_s=load.silence_s,
        saved_bytes_per_s=row.saved_bytes_per_s,
        cost_bytes=row.cost_bytes,
        break_even_s=row.break_even_s,
    )


def _list_rewired(question: Question, layout: Layout) -> tuple[Rewired, ...]:
    return tuple(
        Rewired(link.topic, link.site, layout.links[link])
        for link in question.wiring.links
        if layout.links[link] != link.site
    )
