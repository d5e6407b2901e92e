"""How many subtasks each job of a composition should have, by DS2's rule. Pure.

The rates that reach each job come from the question (propagated by topic, queues that grow
included), the true processing rates from the analysis. The free task slots and the free memory of
a site limit the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from speck.model.analysis_result import AnalysedJob, AnalysisResult
from speck.model.composition import CompositionDescription
from speck.placement.ds2 import Operator, compute_needs
from speck.placement.evidence import SUFFICIENT
from speck.placement.heaps import Heaps
from speck.placement.instance import Instance
from speck.placement.problem import Question
from speck.placement.wiring import WiredJob

HEADROOM = 0.8
"""The share of its true processing rate that a job is planned to use."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A job's subtasks `today`, as many as its rates `needed`, and as many as it is to have
    (`proposed`, at most what its site has room for). Rates: records per second;
    `true_processing_rate`: of today's subtasks together. `shortage`: what its site lacks for all
    that it needs; None: nothing."""

    job_name: str
    site: str
    today: int
    needed: int
    proposed: int
    in_rate: float
    true_processing_rate: float
    shortage: str | None = None

    @property
    def reason(self) -> str:
        """Why it is to have that many, in words."""
        each = self.true_processing_rate / self.today
        why = (
            f"{self.in_rate:.4g} records/s arrive, and one subtask handles {each:.4g}/s at most"
            f" ({HEADROOM:.0%} are planned for)"
        )
        if self.shortage is not None:
            return f"{why}: it needs {self.needed}, but {self.site} has no more {self.shortage}"
        return why


def count_subtasks(number: int) -> str:
    """The number with its unit."""
    return f"{number} subtask" if number == 1 else f"{number} subtasks"


def propose_scales(question: Question, composition: str, analysis: AnalysisResult) -> list[Scale]:
    """The jobs of the question that are measured sufficiently and run, in topological order. More
    subtasks make no program faster that is a process of its own."""
    reports = {job.job_name: job for job in analysis.jobs if job.composition == composition}
    jobs = [job for job in question.wiring.order if not job.stopped]
    subtask_rates = {job.name: _rate_subtask(reports.get(job.name)) for job in jobs}
    operators = [_make_operator(job, subtask_rates[job.name]) for job in jobs]
    sources = {str(link): rate for link, rate in question.rates.items()}
    needs = compute_needs(operators, sources)
    room = _Room(question, Heaps(analysis))
    scales = []
    # what gives room back comes first
    for job in sorted(jobs, key=lambda job: (needs[job.name].parallelism or job.slots) > job.slots):
        need, rate = needs[job.name], subtask_rates[job.name]
        if need.parallelism is None or need.in_rate is None or rate is None:
            continue
        if job.source not in question.rates or job.name in question.hosting.apart:
            continue
        more, shortage = room.take(job.site, need.parallelism - job.slots)
        scales.append(
            Scale(
                job_name=job.name,
                site=job.site,
                today=job.slots,
                needed=need.parallelism,
                proposed=job.slots + more,
                in_rate=need.in_rate,
                true_processing_rate=rate * job.slots,
                shortage=shortage,
            )
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


def _rate_subtask(report: AnalysedJob | None) -> float | None:
    """Records per second that one subtask of a job can process; None without evidence.

    The analysis has seen as many subtasks as it reports, which may be other than there are now.
    """
    if report is None or report.evidence != SUFFICIENT:
        return None
    rate, subtasks = report.true_processing_rate, report.subtasks
    return rate / subtasks if rate and subtasks else None  # a rate of 0 is no evidence of a limit


def _make_operator(job: WiredJob, subtask_rate: float | None) -> Operator:
    """The job as an operator that reads its link; the question has propagated what it sends."""
    usable = None if subtask_rate is None else subtask_rate * HEADROOM * job.slots
    return Operator(job.name, (str(job.source),), (), usable, None, job.slots)


class _Room:
    """The slots and the memory (bytes) that the composition's jobs leave free at each site; None:
    no limit is known."""

    def __init__(self, question: Question, heaps: Heaps):
        self._heaps = heaps
        places = question.whole.places
        self._slots: dict[str, int | None] = {place.name: place.slots for place in places}
        self._memory: dict[str, float | None] = {place.name: place.memory_bytes for place in places}
        instance = Instance(question.whole)
        for load in question.whole.loads:
            if load.site is not None:
                slots, memory = instance.slots_of(load.name), instance.memory_of(load.name)
                self._use(load.site, slots, memory)

    def _use(self, site: str, slots: int, memory: float) -> None:
        free_slots, free_memory = self._slots.get(site), self._memory.get(site)
        self._slots[site] = None if free_slots is None else free_slots - slots
        self._memory[site] = None if free_memory is None else free_memory - memory

    def take(self, site: str, wanted: int) -> tuple[int, str | None]:
        """Take room for as many of the wanted subtasks as there is; returns how many, and what
        lacks for the others. A negative number gives room back."""
        each = self._heaps.subtask_bytes_at(site)
        slots, memory = self._slots.get(site), self._memory.get(site)
        bounds: list[tuple[float, str]] = []
        if slots is not None:
            bounds.append((slots, "task slots"))
        if memory is not None and each > 0:
            bounds.append((memory // each, "memory"))
        most, scarce = min(bounds, default=(math.inf, ""))
        number = int(min(wanted, max(0, most)))
        self._use(site, number, number * each)
        return number, scarce if number < wanted else None
