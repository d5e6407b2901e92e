"""What a placement and its analysis mean to the autopilot. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from speck.model.analysis import Analysis
from speck.monitor.requirements import LATENCY, RATE
from speck.placement.autopilot import Advice
from speck.placement.record import PlacementRecord, ScaleOutline, Side
from speck.placement.scaling import count_subtasks
from speck.placement.sentences import LOW


def advice_of(placement: PlacementRecord, analysis: Analysis, broken: Iterable[str] = ()) -> Advice:
    """A placement as `speck.placement.autopilot` weighs it. `broken`: requirements that are not
    met, as measured; they count where the placement predicts an improvement of them."""
    compared = placement.comparison
    today, proposed = compared.today, compared.proposed
    missed = [f"{name} is not kept" for name in broken if _improves(today, proposed, name)]
    moving = {move.job_name for move in proposed.moves}
    scaled = placement.scaled
    sentences = {
        up: tuple(_describe_scale(each) for each in scaled if (each.target > each.source) is up)
        for up in (True, False)
    }
    doubts = [
        f"{job.job_name}: {sentence}"
        for job in compared.jobs
        if job.job_name in moving and job.confidence == LOW
        for sentence in job.why[-1:]
    ]
    return Advice(
        analysis=analysis.id,
        placement=placement.id,
        today={
            **today.sites,
            **today.links,
            **{f"parallelism of {each.job_name}": str(each.source) for each in scaled},
        },
        sites={
            **proposed.sites,
            **proposed.links,
            **{f"parallelism of {each.job_name}": str(each.target) for each in scaled},
        },
        gain=compared.gain.share,
        broken=(*today.violations, *missed),
        violations=compared.violations,
        doubts=tuple(doubts),
        scaled_up=sentences[True],
        scaled_down=sentences[False],
    )


def _describe_scale(scale: ScaleOutline) -> str:
    subtasks = count_subtasks(scale.target)
    return f"{scale.job_name} gets {subtasks}, not {scale.source}: {scale.reason}"


def _improves(today: Side, proposed: Side, requirement: str) -> bool:
    """Whether an improvement of a requirement is predicted."""
    figure, sign = {RATE: ("max_rate", 1), LATENCY: ("latency_ms", -1)}[requirement]
    before, after = getattr(today, figure), getattr(proposed, figure)
    return None not in (before, after) and sign * (after - before) > 0


def wan_of(analysis: Analysis, composition: str) -> float | None:
    """Bytes per second measured between sites; None when a link was not measured."""
    links = analysis.result.links if analysis.result is not None else ()
    measured = [each.wan_bytes_per_s for each in links if each.composition == composition]
    known = [each for each in measured if each is not None]
    return sum(known) if known and len(known) == len(measured) else None
