"""Compares what the connectors of jobs report of their links. Pure; the time is passed in.

A connector knows what nobody else does: why it is not connected, what the broker refuses, and which
records a setting has made it give up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def minus(self, other: Counts) -> Counts:
        """The differences."""
        return Counts(
            self.left_out - other.left_out,
            self.lost - other.lost,
            self.dropped - other.dropped,
        )

    def or_more(self, other: Counts) -> Counts:
        """The larger one of each."""
        return Counts(
            max(self.left_out, other.left_out),
            max(self.lost, other.lost),
            max(self.dropped, other.dropped),
        )


def _grown(last: int, count: int) -> int:
    return count - last if count >= last else count


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What the connector of one incarnation reports: `measured` at its engine, `announced` at the
    brokers of its links (None: nothing), and why it cannot read or write now (None: it can).

    Both have the same counters. What is announced stays at the broker: an incarnation finds there
    what the one before it has counted, until it announces something itself.
    """

    measured: Counts | None = None
    announced: Counts | None = None
    problem: str | None = None


def make_report(
    measure: LinkMeasure | None,
    sent: Sequence[Sent],
    taken: Taken | None,
    *,
    is_complete: bool = True,
) -> LinkReport:
    """Combine what an engine and what brokers report, `sent` for each link of the port. The
    engine's word on a problem is newer than an announced one, which stays when its sink has ended.
    Unless each broker of the links has answered (`is_complete`), nothing is counted: a sum that
    lacks one would seem to grow once more when it answers again."""
    measured = announced = None
    if is_complete and (sent or taken is not None):
        left_out, lost = sum(each.left_out for each in sent), sum(each.lost for each in sent)
        announced = Counts(left_out, lost, taken.dropped if taken else 0)
    problem = next((each.problem for each in sent if each.problem is not None), None)
    if measure is not None:
        measured = Counts(measure.left_out, measure.lost, measure.dropped)
        problem = measure.problem
    return LinkReport(measured, announced, problem)


@dataclass(frozen=True, slots=True)
class _Series:
    """A series of counts from one source: the last, how much they have grown in all, and how much
    of that is from before the service started. `began_before`: so are the next counts, since none
    were read yet: a broker may not have answered."""

    last: Counts = NOTHING
    total: Counts = NOTHING
    former: Counts = NOTHING
    began_before: bool = False

    def update(self, counts: Counts | None, *, restarted: bool = False) -> _Series:
        """With the newest counts; `restarted`: they are those of another incarnation."""
        if not restarted and not self.began_before and (counts is None or counts == self.last):
            return self
        if counts is None:
            return _Series(NOTHING, self.total, self.former) if restarted else self
        total = self.total.plus(counts.grown_since(NOTHING if restarted else self.last))
        former = total if self.began_before and not restarted else self.former
        return _Series(counts, total, former)


@dataclass(frozen=True, slots=True)
class JobLinks:
    """What is known of a job's links: the present problem since `since`, and totals over all
    incarnations: `losses`, and `news`, those since the service started. `reported` is what events
    have said."""

    engine_job_id: str
    problem: str | None = None
    since: float = 0.0
    measured: _Series = _Series()
    announced: _Series = _Series()
    losses: Counts = NOTHING
    news: Counts = NOTHING
    reported: Counts = NOTHING
    reported_at: float = float("-inf")
    is_problem_reported: bool = False

    def count(self, measured: _Series, announced: _Series) -> JobLinks:
        """With the newest series; of each the larger total, since either source may have missed
        something."""
        if measured is self.measured and announced is self.announced:
            return self
        return replace(
            self,
            measured=measured,
            announced=announced,
            losses=measured.total.or_more(announced.total),
            news=_list_new(measured).or_more(_list_new(announced)),
        )


def _list_new(series: _Series) -> Counts:
    return series.total.minus(series.former)


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
    of the totals, and not reported, also when it is read only later. For that a job whose
    incarnation had ended by then is remembered, too: what it has announced stays.
    """
    jobs: dict[Key, JobLinks] = {}
    news: list[LinkNews] = []
    for key, (engine_job_id, report) in reports.items():
        old = _begun_before(engine_job_id) if before.jobs is None else before.jobs.get(key)
        if report is not None:
            new = _update(now, engine_job_id, report, old or JobLinks(engine_job_id))
            jobs[key] = _report(now, key, new, news)
        elif old is not None:  # its next incarnation goes on with the totals
            jobs[key] = _without_problem(old)
    return ReportMemory(jobs, tuple(news))


def _begun_before(engine_job_id: str) -> JobLinks:
    """What is known of an incarnation that is older than the service's process."""
    series = _Series(began_before=True)
    return JobLinks(engine_job_id, measured=series, announced=series)


def _without_problem(job: JobLinks) -> JobLinks:
    if job.problem is None and not job.is_problem_reported:
        return job
    return replace(job, problem=None, is_problem_reported=False)


def _update(now: float, engine_job_id: str, report: LinkReport, known: JobLinks) -> JobLinks:
    """With the newest report. At nearly every poll nothing has changed, and nothing is made."""
    restarted = known.engine_job_id != engine_job_id
    job = known.count(
        known.measured.update(report.measured, restarted=restarted),
        known.announced.update(report.announced),
    )
    if restarted or report.problem != known.problem:
        begins = (report.problem is None) != (known.problem is None)
        since = now if begins else known.since
        job = replace(job, engine_job_id=engine_job_id, problem=report.problem, since=since)
    return job


def _report(now: float, key: Key, job: JobLinks, news: list[LinkNews]) -> JobLinks:
    scope, name = key
    if job.news != job.reported and now - job.reported_at >= REPORT_S:
        grown = job.news.minus(job.reported)
        for kind, count in (
            ("left_out", grown.left_out),
            ("lost", grown.lost),
            ("dropped", grown.dropped),
        ):
            news += [LinkNews(kind, name, scope, count)] if count else []
        job = replace(job, reported=job.news, reported_at=now)
    if job.problem is not None and not job.is_problem_reported and now - job.since >= LASTING_S:
        news.append(LinkNews("problem", name, scope, problem=job.problem))
        return replace(job, is_problem_reported=True)
    if job.problem is None and job.is_problem_reported:
        news.append(LinkNews("solved", name, scope))
        return replace(job, is_problem_reported=False)
    return job
