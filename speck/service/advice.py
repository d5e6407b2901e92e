"""What a placement and its analysis mean to the autopilot. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from speck.model.values import JsonObject
from speck.monitor.requirements import LATENCY, RATE
from speck.placement.autopilot import Advice
from speck.placement.scaling import count_subtasks
from speck.placement.sentences import LOW


def advice_of(placement: JsonObject, analysis: JsonObject, broken: Iterable[str] = ()) -> Advice:
    """A placement as `speck.placement.autopilot` weighs it. `broken`: requirements that are not
    met, as measured; they count where the placement predicts an improvement of them."""
    missed = [f"{name} is not kept" for name in broken if _improves(placement, name)]
    moving = {move["job_name"] for move in placement["proposed"]["moves"]}
    scaled = list_scaled(placement)
    sentences = {
        up: tuple(_describe_scale(s) for s in scaled if (s["to"] > s["from"]) is up)
        for up in (True, False)
    }
    doubts = [
        f"{job['job_name']}: {sentence}"
        for job in placement["jobs"]
        if job["job_name"] in moving and job["confidence"] == LOW
        for sentence in job["why"][-1:]
    ]
    return Advice(
        analysis=analysis["id"],
        placement=placement["id"],
        today={
            **placement["today"]["sites"],
            **placement["today"]["links"],
            **{f"parallelism of {s['job_name']}": str(s["from"]) for s in scaled},
        },
        sites={
            **placement["proposed"]["sites"],
            **placement["proposed"]["links"],
            **{f"parallelism of {s['job_name']}": str(s["to"]) for s in scaled},
        },
        gain=placement["gain"]["share"],
        broken=(*placement["today"]["violations"], *missed),
        violations=tuple(placement["violations"]),
        doubts=tuple(doubts),
        scaled_up=sentences[True],
        scaled_down=sentences[False],
    )


def list_scaled(placement: JsonObject) -> list[JsonObject]:
    """The jobs whose parallelism a placement changes."""
    return [each for each in placement["scales"] if each["from"] != each["to"]]


def _describe_scale(scale: JsonObject) -> str:
    subtasks = count_subtasks(scale["to"])
    return f"{scale['job_name']} gets {subtasks}, not {scale['from']}: {scale['reason']}"


def _improves(placement: JsonObject, requirement: str) -> bool:
    """Whether a placement predicts an improvement of a requirement."""
    figure, sign = {RATE: ("max_rate", 1), LATENCY: ("latency_ms", -1)}[requirement]
    before, after = placement["today"][figure], placement["proposed"][figure]
    return None not in (before, after) and sign * (after - before) > 0


def wan_of(analysis: JsonObject, composition: str) -> float | None:
    """Bytes per second measured between sites; None when a link was not measured."""
    measured = [
        link["wan_bytes_per_s"] for link in analysis["links"] if link["composition"] == composition
    ]
    return None if None in measured or not measured else float(sum(measured))
