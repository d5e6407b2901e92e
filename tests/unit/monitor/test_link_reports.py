"""What connectors report of their links: totals over restarts, and what becomes an event."""

from __future__ import annotations

from speck.model.measurement import LinkMeasure
from speck.model.observation import Sent, Taken
from speck.monitor.link_reports import (
    LASTING_S,
    REPORT_S,
    LinkReport,
    ReportMemory,
    judge_reports,
    merge_reports,
)

KEY = ("demo", "A")
REFUSED = "cannot write to tcp://edge-a:1883 A-out: the broker refuses records: NOT_AUTHORIZED"


class Reports:
    """A series of polls of one job."""

    def __init__(self) -> None:
        self.memory = judge_reports(0.0, {}, ReportMemory())

    def poll(self, now: float, report: LinkReport, job_id: str = "1") -> list[tuple[str, int]]:
        self.memory = judge_reports(now, {KEY: (job_id, report)}, self.memory)
        return [(news.kind, news.count) for news in self.memory.news]

    def totals(self) -> tuple[int, int]:
        assert self.memory.jobs is not None
        job = self.memory.jobs[KEY]
        return job.left_out, job.lost


def test_the_first_loss_is_reported_at_once_and_later_ones_once_a_minute() -> None:
    reports = Reports()
    assert reports.poll(1, LinkReport()) == []
    assert reports.poll(2, LinkReport(left_out=1)) == [("left_out", 1)]
    assert reports.poll(3, LinkReport(left_out=4, lost=2)) == []
    assert reports.poll(2 + REPORT_S, LinkReport(left_out=4, lost=2)) == [
        ("left_out", 3),
        ("lost", 2),
    ]
    assert reports.poll(3 + REPORT_S, LinkReport(left_out=4, lost=2)) == []
    assert reports.totals() == (4, 2)


def test_totals_go_on_over_restarts_of_tasks_and_over_incarnations() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(left_out=5))
    reports.poll(2, LinkReport(left_out=2))  # the task began to count again
    assert reports.totals() == (7, 0)
    reports.poll(3, LinkReport(left_out=2), "2")  # another incarnation has as many
    assert reports.totals() == (9, 0)


def test_what_was_lost_before_the_service_started_is_counted_and_not_reported() -> None:
    memory = judge_reports(0, {KEY: ("1", LinkReport(left_out=5))}, ReportMemory())
    assert memory.news == ()
    assert memory.jobs is not None and memory.jobs[KEY].left_out == 5
    later = judge_reports(99, {KEY: ("1", LinkReport(left_out=6))}, memory)
    assert [news.count for news in later.news] == [1]


def test_a_problem_is_reported_once_it_lasts_and_once_it_is_solved() -> None:
    reports = Reports()
    assert reports.poll(1, LinkReport(problem=REFUSED)) == []
    assert reports.poll(1 + LASTING_S / 2, LinkReport(problem="another word for it")) == []
    assert reports.poll(1 + LASTING_S, LinkReport(problem=REFUSED)) == [("problem", 0)]
    assert reports.poll(2 + LASTING_S, LinkReport(problem=REFUSED)) == []
    assert reports.poll(3 + LASTING_S, LinkReport()) == [("solved", 0)]
    assert reports.poll(4 + LASTING_S, LinkReport()) == []


def test_a_problem_that_passes_is_not_reported() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(problem=REFUSED))
    assert reports.poll(5, LinkReport()) == []
    assert reports.poll(6, LinkReport(problem=REFUSED)) == []
    assert reports.poll(5 + LASTING_S, LinkReport(problem=REFUSED)) == []


def test_the_same_counters_are_read_from_brokers_and_engines() -> None:
    sent = Sent("p", 1, 7, left_out=3, lost=1, problem="as of the last announcement")
    taken = Taken(1, {}, dropped=4)
    assert merge_reports(None, sent, taken) == LinkReport(3, 5, "as of the last announcement")
    engine = LinkMeasure(None, left_out=2, lost=2, dropped=5)
    assert merge_reports(engine, sent, taken) == LinkReport(3, 7, None)
    assert merge_reports(LinkMeasure("no login"), None, None) == LinkReport(problem="no login")
    assert merge_reports(None, None, None) == LinkReport()
