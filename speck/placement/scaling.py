"""How many subtasks each job of a composition should have, by DS2's rule. Pure.

The rates that reach each job come from the question (propagated by topic, queues that grow
included), the true processing rates from the analysis. A site's free task slots limit the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from speck.model.composition import CompositionDescription
from speck.model.values import JsonObject
from speck.placement.ds2 import Operator, compute_needs
from speck.placement.problem import Question
from speck.placement.wiring import WiredJob

HEADROOM = 0.8
"""The share of its true processing rate that a job is planned to use."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A job's subtasks `today`, as many as its rates `needed`, and as many as it is to have
    (`proposed`, at most what its site has slots for). Rates: records per second;
    `true_processing_rate`: of today's subtasks together."""

    job_name: str
    site: str
    today: int
    needed: int
    proposed: int
    in_rate: float
    true_processing_rate: float

    @property
    def reason(self) -> str:
        """Why it is to have that many, in words."""
        each = self.true_processing_rate / self.today
        why = (
            f"{self.in_rate:.4g} records/s arrive, and one subtask handles {each:.4g}/s at most"
            f" ({HEADROOM:.0%} are planned for)"
        )
        if self.proposed < self.needed:
            return f"{why}: it needs {self.needed}, but {self.site} has no more task slots"
        return why


def propose_scales(question: Question, composition: str, analysis: JsonObject) -> list[Scale]:
    """The jobs of the question that are measured sufficiently and run, in topological order."""
    reports = {
        job["job_name"]: job for job in analysis["jobs"] if job["composition"] == composition
    }
    jobs = [job for job in question.wiring.order if not job.stopped]
    operators = [_make_operator(job, reports.get(job.name)) for job in jobs]
    sources = {str(link): rate for link, rate in question.rates.items()}
    needs = compute_needs(operators, sources)
    slots = _count_free_slots(question)
    scales = []
    # what gives slots back comes first
    for job in sorted(jobs, key=lambda job: (needs[job.name].parallelism or job.slots) > job.slots):
        need, rate = needs[job.name], reports.get(job.name, {}).get("true_processing_rate")
        if need.parallelism is None or need.in_rate is None or rate is None:
            continue
        free = slots.get(job.site)
        most = need.parallelism if free is None else job.slots + max(0, free)
        proposed = max(1, min(need.parallelism, most))
        if free is not None:
            slots[job.site] = free - (proposed - job.slots)
        scales.append(
            Scale(job.name, job.site, job.slots, need.parallelism, proposed, need.in_rate, rate)
        )
    positions = {job.name: position for position, job in enumerate(jobs)}
    return sorted(scales, key=lambda scale: positions[scale.job_name])


def apply_scales(
    description: CompositionDescription, scales: Mapping[str, int]
) -> CompositionDescription:
    """The description with the parallelism of `scales`, by job."""
    jobs = tuple(
        replace(job, parallelism=scales.get(job.job_name, job.parallelism))
        for job in description.jobs
    )
    return replace(description, jobs=jobs)


def _make_operator(job: WiredJob, report: JsonObject | None) -> Operator:
    """The job as an operator that reads its link; the question has propagated what it sends."""
    rate = None
    if report is not None and report["evidence"] == "sufficient":
        rate = report["true_processing_rate"]
    usable = rate * HEADROOM if rate else None  # a rate of 0 is no evidence of a limit
    return Operator(job.name, (str(job.source),), (), usable, None, job.slots)


def _count_free_slots(question: Question) -> dict[str, int | None]:
    """By site: the slots that the composition's jobs leave free; None: no limit is known."""
    used: dict[str, int] = {}
    for load in question.whole.loads:
        if load.site is not None:
            used[load.site] = used.get(load.site, 0) + load.slots
    return {
        place.name: None if place.slots is None else place.slots - used.get(place.name, 0)
        for place in question.whole.places
    }
