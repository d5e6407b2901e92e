"""The memory of sites and jobs, from an analysis: what is free, and what jobs will need. Pure.

A job needs the heap that it uses now, and what its state will grow by in a time as long as the
analysis's window: growth that was seen for ten minutes is believed for ten more.
"""

from __future__ import annotations

from collections.abc import Iterable

from speck.model.analysis_result import AnalysedJob, AnalysisResult
from speck.placement.instance import MEMORY_BYTES
from speck.placement.model import Load

HEAP_SHARE = 0.8
"""Maximum share of an engine's heap for objects in use. Beyond, the collector runs most of the
time, and a burst ends the engine."""


class Heaps:
    """What an analysis says about heaps. Jobs that run `apart` need nothing of any."""

    def __init__(self, analysis: AnalysisResult, apart: frozenset[str] = frozenset()):
        self._apart = apart
        self._jobs = {
            (job.composition, job.job_name): job
            for job in analysis.jobs
            if not job.ended and job.job_name not in apart
        }
        self._sites = {site.name: site for site in analysis.sites}
        self._ahead_s = analysis.window.seconds
        self._shrink = self._compare_estimates()

    def _compare_estimates(self) -> dict[str, float]:
        """By site: a factor by which the jobs' estimates add up to no more than its heap in use."""
        sums: dict[str, float] = {}
        for job in self._jobs.values():
            sums[job.site] = sums.get(job.site, 0.0) + (job.heap_bytes or 0.0)
        factors = {}
        for site, estimated in sums.items():
            report = self._sites.get(site)
            used = report.heap_bytes if report else None
            factors[site] = min(1.0, used / estimated) if used and estimated > 0 else 1.0
        return factors

    def _estimate(self, job: AnalysedJob | None) -> float | None:
        """Heap bytes that a job uses now."""
        if job is None or job.heap_bytes is None:
            return None
        return job.heap_bytes * self._shrink.get(job.site, 1.0)

    def _expect_growth(self, job: AnalysedJob) -> float:
        return max(0.0, job.heap_bytes_per_s or 0.0) * self._ahead_s

    def subtask_bytes_at(self, site: str) -> float:
        """Heap bytes of one more subtask at a site, without state."""
        report = self._sites.get(site)
        measured = report.heap_bytes_per_subtask if report else None
        return MEMORY_BYTES if measured is None else measured

    def foresee(self, composition: str, job_name: str, subtasks: int) -> float | None:
        """Heap bytes that a job will need with so many subtasks; None: unknown."""
        if job_name in self._apart:
            return 0.0
        job = self._jobs.get((composition, job_name))
        heap = self._estimate(job)
        if job is None or heap is None:
            return None
        more = (subtasks - (job.subtasks or subtasks)) * self.subtask_bytes_at(job.site)
        return max(0.0, heap + more) + self._expect_growth(job)

    def count_available(
        self, composition: str, own_jobs: Iterable[Load], site: str
    ) -> float | None:
        """Heap bytes at a site for the composition, its own jobs' included; None: unknown.

        `own_jobs`: the running jobs of the composition, where they are now. What the jobs of others
        will grow by is taken off.
        """
        report = self._sites.get(site)
        if report is None or report.heap_max_bytes is None or report.heap_bytes is None:
            return None
        available = HEAP_SHARE * report.heap_max_bytes - report.heap_bytes
        own_names = set()
        for load in own_jobs:
            if load.name in self._apart:
                continue
            own_names.add(load.name)
            job = self._jobs.get((composition, load.name))
            # the heap in use holds only what ran at this site when it was measured
            if load.site == site and (job is None or job.site == site):
                estimate = self._estimate(job)
                available += load.slots * MEMORY_BYTES if estimate is None else estimate
        for (owner, name), job in self._jobs.items():
            if job.site == site and (owner != composition or name not in own_names):
                available -= self._expect_growth(job)
        return available
