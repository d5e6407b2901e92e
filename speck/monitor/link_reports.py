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
class Counts:
    """Records of the sink that were left out since no broker would take them, and those lost as a
    setting allows; and messages that the source has dropped since they found no room."""

    left_out: int = 0
    lost: int = 0
    dropped: int = 0

    def grown_since(self, last: Counts) -> Counts:
        """How much the counters have grown: they begin at 0 again when their task is started
        again."""
        return Counts(
            _grown(last.left_out, self.left_out),
            _grown(last.lost, self.lost),
            _grown(last.dropped, self.dropped),
        )

    def plus(self, other: Counts) -> Counts:
        """The sums."""
        return Counts(
            self.left_out + other.left_out,
            self.lost + other.lost,
            self.dropped + other.dropped,
        )


def _grown(last: int, count: int) -> int:
    return count - last if count >= last else count


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What the connector of one incarnation reports: `measured` at its engine, `announced` at the
    brokers of its links (None: nothing), and why it cannot read or write now (None: it can).

    Both have the same counters. What is announced is retained: an incarnation finds there what the
    one before it has counted, until it announces something itself.
    """

    measured: Counts | None = None
    announced: Counts | None = None
    problem: str | None = None


def make_report(measure: LinkMeasure | None, sent: Sent | None, taken: Taken | None) -> LinkReport:
    """Combine what an engine and what brokers report. The engine's word on a problem is newer than
    a retained message, which stays when its sink has ended."""
    measured = announced = problem = None
    if sent is not None or taken is not None:
        dropped = taken.dropped if taken else 0
        announced = Counts(sent.left_out, sent.lost, dropped) if sent else Counts(0, 0, dropped)
        problem = sent.problem if sent else None
    if measure is not None:
        measured = Counts(measure.left_out, measure.lost, measure.dropped)
        problem = measure.problem
    return LinkReport(measured, announced, problem)


@dataclass(frozen=True, slots=True)
class _Series:
    """A series of counts from one source: the last, and how much they have grown in all."""

    last: Counts = Counts()
    total: Counts = Counts()

    def update(self, counts: Counts | None, *, anew: bool = False) -> _Series:
        """With the newest counts; `anew`: they are those of another incarnation."""
        if counts is None:
            return self
        grown = counts.grown_since(Counts() if anew else self.last)
        return _Series(counts, self.total.plus(grown))


@dataclass(frozen=True, slots=True)
class JobLinks:
    """What is known of a job's links: the present problem since `since`, and totals over all
    incarnations since the service started. `reported` is what events have said."""

    engine_job_id: str
    problem: str | None = None
    since: float = 0.0
    measured: _Series = _Series()
    announced: _Series = _Series()
    reported: Counts = Counts()
    reported_at: float = float("-inf")
    is_problem_reported: bool = False

    @property
    def losses(self) -> Counts:
        """The totals: either source may have missed something."""
        one, other = self.measured.total, self.announced.total
        return Counts(
            max(one.left_out, other.left_out),
            max(one.lost, other.lost),
            max(one.dropped, other.dropped),
        )


@dataclass(frozen=True, slots=True)
class LinkNews:
    """Something to report of a job: `kind` is left_out, lost or dropped (`count` records), problem
    or solved."""

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
    now: float, reports: Mapping[Key, tuple[str, LinkReport | None]], before: ReportMemory
) -> ReportMemory:
    """Compare the reports of this poll, by job with its engine job id, with earlier ones; None: the
    incarnation has ended.

    A job that is not in `reports` is forgotten. What was counted before the service started is part
    of the totals, and not reported again.
    """
    jobs: dict[Key, JobLinks] = {}
    news: list[LinkNews] = []
    known = before.jobs or {}
    for key, (engine_job_id, report) in reports.items():
        old = known.get(key)
        if report is None:
            if old is not None:  # its next incarnation goes on with the totals
                jobs[key] = replace(old, problem=None, is_problem_reported=False)
            continue
        new = _update(now, engine_job_id, report, old)
        if before.jobs is None:
            new = replace(new, reported=new.losses)
        jobs[key] = _report(now, key, new, news)
    return ReportMemory(jobs, tuple(news))


def _update(now: float, engine_job_id: str, report: LinkReport, old: JobLinks | None) -> JobLinks:
    known = old or JobLinks(engine_job_id)
    another = known.engine_job_id != engine_job_id
    begins = (report.problem is None) != (known.problem is None)
    return replace(
        known,
        engine_job_id=engine_job_id,
        problem=report.problem,
        since=now if begins else known.since,
        measured=known.measured.update(report.measured, anew=another),
        announced=known.announced.update(report.announced),
    )


def _report(now: float, key: Key, job: JobLinks, news: list[LinkNews]) -> JobLinks:
    scope, name = key
    losses = job.losses
    if losses != job.reported and now - job.reported_at >= REPORT_S:
        for kind, count in (
            ("left_out", losses.left_out - job.reported.left_out),
            ("lost", losses.lost - job.reported.lost),
            ("dropped", losses.dropped - job.reported.dropped),
        ):
            news += [LinkNews(kind, name, scope, count)] if count else []
        job = replace(job, reported=losses, reported_at=now)
    if job.problem is not None and not job.is_problem_reported and now - job.since >= LASTING_S:
        news.append(LinkNews("problem", name, scope, problem=job.problem))
        return replace(job, is_problem_reported=True)
    if job.problem is None and job.is_problem_reported:
        news.append(LinkNews("solved", name, scope))
        return replace(job, is_problem_reported=False)
    return job
