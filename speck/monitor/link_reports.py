"""Compares what the connectors of jobs report of their links. Pure; the time is passed in.

A connector knows what nobody else does: why it is not connected, what the broker refuses, and which
records a setting has made it give up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from speck.model.measurement import LinkMeasure
from speck.model.observation import Sent, Taken

LASTING_S = 10.0
"""A problem is reported once it has lasted so long: connections are lost and made again."""

STALLED_S = 30.0
"""A job that cannot use a broker for so long, while speck can, counts as stalled."""

REPORT_S = 60.0
"""Losses that go on are reported as often as this."""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What the connector of one incarnation reports: records left out since no broker would take
    them, records lost as a setting allows, and why it cannot read or write now (None: it can)."""

    left_out: int = 0
    lost: int = 0
    problem: str | None = None


def merge_reports(
    measure: LinkMeasure | None, sent: Sent | None, taken: Taken | None
) -> LinkReport:
    """Merge what an engine and what brokers report of one incarnation.

    They have the same counters, of which one may be older. The engine's word on a problem is newer
    than a retained message, which stays when its sink has ended.
    """
    left_out, lost, dropped, problem = 0, 0, 0, None
    if sent is not None:
        left_out, lost, problem = sent.left_out, sent.lost, sent.problem
    if taken is not None:
        dropped = taken.dropped
    if measure is not None:
        left_out, lost = max(left_out, measure.left_out), max(lost, measure.lost)
        dropped, problem = max(dropped, measure.dropped), measure.problem
    return LinkReport(left_out, lost + dropped, problem)


@dataclass(frozen=True, slots=True)
class JobLinks:
    """What is known of a job's links: totals over its incarnations since the service started, and
    the present problem since `since`. `reported_*` is what events have said."""

    engine_job_id: str
    last: LinkReport
    left_out: int = 0
    lost: int = 0
    since: float = 0.0
    reported_left_out: int = 0
    reported_lost: int = 0
    reported_at: float = float("-inf")
    is_problem_reported: bool = False

    @property
    def problem(self) -> str | None:
        """Why the job cannot read or write now."""
        return self.last.problem

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to report, as long as nothing changes."""
        said = self.left_out == self.reported_left_out and self.lost == self.reported_lost
        return said and self.problem is None and not self.is_problem_reported


@dataclass(frozen=True, slots=True)
class LinkNews:
    """Something to report of a job: `kind` is left_out or lost (`count` records), problem or
    solved."""

    kind: str
    job_name: str
    scope: str
    count: int = 0
    problem: str | None = None


Key = tuple[str, str]
"""(scope, job name)"""


@dataclass(frozen=True, slots=True)
class ReportMemory:
    """What earlier polls showed; None: there was none."""

    jobs: Mapping[Key, JobLinks] | None = None
    news: tuple[LinkNews, ...] = field(default=(), compare=False)


def judge_reports(
    now: float, reports: Mapping[Key, tuple[str, LinkReport]], before: ReportMemory
) -> ReportMemory:
    """Compare the reports of this poll, by job with its engine job id, with earlier ones.

    A job that is not in `reports` is forgotten. What was counted before the service started is part
    of the totals, and not reported again.
    """
    jobs: dict[Key, JobLinks] = {}
    news: list[LinkNews] = []
    known = before.jobs or {}
    for key, (engine_job_id, report) in reports.items():
        old = known.get(key)
        if (
            old is not None
            and old.is_quiet
            and (engine_job_id, report) == (old.engine_job_id, old.last)
        ):
            jobs[key] = old  # as nearly all are at nearly every poll
            continue
        new = _count(now, engine_job_id, report, old)
        if before.jobs is None:
            new = replace(new, reported_left_out=new.left_out, reported_lost=new.lost)
        jobs[key] = _report(now, key, new, news)
    return ReportMemory(jobs, tuple(news))


def _count(now: float, engine_job_id: str, report: LinkReport, old: JobLinks | None) -> JobLinks:
    if old is None:
        return JobLinks(engine_job_id, report, report.left_out, report.lost, now)
    last = old.last if old.engine_job_id == engine_job_id else LinkReport()
    begins = (report.problem is None) != (old.problem is None)
    return replace(
        old,
        engine_job_id=engine_job_id,
        last=report,
        left_out=old.left_out + _grown(last.left_out, report.left_out),
        lost=old.lost + _grown(last.lost, report.lost),
        since=now if begins else old.since,
    )


def _grown(last: int, count: int) -> int:
    """How much a counter has grown, which begins at 0 again when its task is started again."""
    return count - last if count >= last else count


def _report(now: float, key: Key, job: JobLinks, news: list[LinkNews]) -> JobLinks:
    scope, name = key
    grown = {"left_out": job.left_out - job.reported_left_out, "lost": job.lost - job.reported_lost}
    if any(grown.values()) and now - job.reported_at >= REPORT_S:
        news += [LinkNews(kind, name, scope, count) for kind, count in grown.items() if count]
        job = replace(job, reported_left_out=job.left_out, reported_lost=job.lost, reported_at=now)
    if job.problem is not None and not job.is_problem_reported and now - job.since >= LASTING_S:
        news.append(LinkNews("problem", name, scope, problem=job.problem))
        return replace(job, is_problem_reported=True)
    if job.problem is None and job.is_problem_reported:
        news.append(LinkNews("solved", name, scope))
        return replace(job, is_problem_reported=False)
    return job
