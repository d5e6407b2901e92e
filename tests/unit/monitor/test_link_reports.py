"""What connectors report of their links: totals over restarts, and what becomes an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from speck.model.measurement import LinkMeasure
from speck.model.observation import Sent, Taken
from speck.monitor.link_reports import (
    LASTING_S,
    REPORT_S,
    Counts,
    Key,
    LinkReport,
    ReportMemory,
    judge_reports,
    make_report,
)

KEY = ("demo", "A")
REFUSED = "cannot write to tcp://edge-a:1883 A-out: the broker refuses records: NOT_AUTHORIZED"


class Reports:
    """A series of polls of one job."""

    def __init__(self, first: Mapping[Key, tuple[str, LinkReport | None]] | None = None) -> None:
        """`first`: what the first poll after the start of the service shows."""
        self.memory = judge_reports(0.0, first or {}, ReportMemory())
        assert not self.memory.news

    def poll(
        self, now: float, report: LinkReport | None, job_id: str = "1"
    ) -> list[tuple[str, int]]:
        self.memory = judge_reports(now, {KEY: (job_id, report)}, self.memory)
        return [(news.kind, news.count) for news in self.memory.news]

    def totals(self) -> Counts:
        assert self.memory.jobs is not None
        return self.memory.jobs[KEY].losses


def measured(left_out: int = 0, lost: int = 0) -> LinkReport:
    return LinkReport(measured=Counts(left_out, lost))


def announced(left_out: int = 0, lost: int = 0) -> LinkReport:
    return LinkReport(announced=Counts(left_out, lost))


def test_the_first_loss_is_reported_at_once_and_later_ones_once_a_minute() -> None:
    reports = Reports()
    assert reports.poll(1, LinkReport()) == []
    assert reports.poll(2, measured(1)) == [("left_out", 1)]
    assert reports.poll(3, measured(4, 2)) == []
    assert reports.poll(2 + REPORT_S, measured(4, 2)) == [("left_out", 3), ("lost", 2)]
    assert reports.poll(3 + REPORT_S, measured(4, 2)) == []
    assert reports.totals() == Counts(4, 2)


def test_totals_go_on_over_restarts_of_tasks_and_over_incarnations() -> None:
    reports = Reports()
    reports.poll(1, measured(5))
    reports.poll(2, measured(2))  # the task began to count again
    assert reports.totals() == Counts(7)
    reports.poll(3, None)  # it was stopped
    assert reports.totals() == Counts(7)
    reports.poll(4, measured(2), "2")  # another incarnation has as many
    assert reports.totals() == Counts(9)


def test_what_the_incarnation_before_has_announced_is_not_counted_twice() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(Counts(5), Counts(5)))
    reports.poll(2, None)
    reports.poll(3, announced(5), "2")  # still retained
    reports.poll(4, LinkReport(Counts(0), Counts(5)), "2")
    assert reports.totals() == Counts(5)
    reports.poll(5, LinkReport(Counts(1), Counts(1)), "2")
    assert reports.totals() == Counts(6)


def test_a_source_that_is_silent_for_a_while_misses_nothing() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(Counts(1), Counts(1)))
    reports.poll(2, announced(3))
    reports.poll(3, LinkReport(None, None))
    reports.poll(4, LinkReport(Counts(4), Counts(3)))
    assert reports.totals() == Counts(4)


def test_what_was_lost_before_the_service_started_is_counted_and_not_reported() -> None:
    memory = judge_reports(0, {KEY: ("1", measured(5))}, ReportMemory())
    assert memory.news == ()
    assert memory.jobs is not None
    assert memory.jobs[KEY].losses == Counts(5)
    later = judge_reports(99, {KEY: ("1", measured(6))}, memory)
    assert [news.count for news in later.news] == [1]


@pytest.mark.parametrize("make", [measured, announced])
def test_what_was_lost_before_the_start_is_not_reported_when_it_is_read_late(
    make: Callable[[int], LinkReport],
) -> None:
    """As by a broker that does not answer at first, or an engine that was not measured yet."""
    reports = Reports({KEY: ("1", LinkReport())})
    assert reports.poll(5, make(7)) == []
    assert reports.totals() == Counts(7)
    assert reports.poll(6, make(8)) == [("left_out", 1)]


def test_what_the_engine_has_said_is_not_taken_for_what_a_broker_says_late() -> None:
    reports = Reports({KEY: ("1", measured(5))})
    assert reports.poll(5, LinkReport(Counts(6), Counts(6))) == [("left_out", 1)]
    assert reports.poll(99, LinkReport(Counts(8), Counts(8))) == [("left_out", 2)]
    assert reports.totals() == Counts(8)


def test_what_an_incarnation_that_had_ended_before_the_start_has_announced_is_not_reported() -> (
    None
):
    reports = Reports({KEY: ("1", None)})
    assert reports.poll(5, LinkReport(Counts(1), Counts(7)), "2") == [("left_out", 1)]
    assert reports.totals() == Counts(7)


def test_another_incarnation_counts_from_zero_though_nothing_was_read_before() -> None:
    reports = Reports({KEY: ("1", LinkReport())})
    assert reports.poll(5, measured(2), "2") == [("left_out", 2)]
    assert reports.poll(99, LinkReport(), "3") == []
    assert reports.poll(99, measured(2), "3") == [("left_out", 2)]


def test_a_poll_that_shows_nothing_new_makes_nothing() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(Counts(1), Counts(2), problem=REFUSED))
    reports.poll(99, LinkReport(Counts(1), Counts(2), problem=REFUSED))
    assert reports.memory.jobs is not None
    before = reports.memory.jobs[KEY]
    reports.poll(199, LinkReport(Counts(1), Counts(2), problem=REFUSED))
    assert reports.memory.jobs[KEY] is before


def test_a_problem_is_reported_once_it_lasts_and_once_it_is_solved() -> None:
    reports = Reports()
    assert reports.poll(1, LinkReport(problem=REFUSED)) == []
    assert reports.poll(1 + LASTING_S / 2, LinkReport(problem="another word for it")) == []
    assert reports.poll(1 + LASTING_S, LinkReport(problem=REFUSED)) == [("problem", 0)]
    assert reports.poll(2 + LASTING_S, LinkReport(problem=REFUSED)) == []
    assert reports.poll(3 + LASTING_S, LinkReport()) == [("solved", 0)]
    assert reports.poll(4 + LASTING_S, LinkReport()) == []


def test_a_job_that_is_stopped_with_a_problem_does_not_write_again() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(problem=REFUSED))
    reports.poll(1 + LASTING_S, LinkReport(problem=REFUSED))
    assert reports.poll(2 + LASTING_S, None) == []
    assert reports.poll(3 + LASTING_S, LinkReport(), "2") == []


def test_a_problem_that_passes_is_not_reported() -> None:
    reports = Reports()
    reports.poll(1, LinkReport(problem=REFUSED))
    assert reports.poll(5, LinkReport()) == []
    assert reports.poll(6, LinkReport(problem=REFUSED)) == []
    assert reports.poll(5 + LASTING_S, LinkReport(problem=REFUSED)) == []


def test_the_same_counters_are_read_from_brokers_and_engines() -> None:
    sent = Sent("p", 1, 7, left_out=3, lost=1, problem="as of the last announcement")
    taken = Taken(1, {}, dropped=4)
    brokers = make_report(None, [sent], taken)
    assert brokers == LinkReport(None, Counts(3, 1, 4), "as of the last announcement")
    engine = LinkMeasure(None, left_out=2, lost=2, dropped=5)
    assert make_report(engine, [sent], taken) == LinkReport(Counts(2, 2, 5), Counts(3, 1, 4), None)
    assert make_report(None, [], taken) == LinkReport(None, Counts(0, 0, 4))
    assert make_report(LinkMeasure("no login"), [], None) == LinkReport(Counts(), None, "no login")
    assert make_report(None, [], None) == LinkReport()


def test_what_is_announced_of_the_links_of_a_port_is_added_up() -> None:
    sent = [Sent("p", 1, 7, left_out=3), Sent("p-1", 1, 9, left_out=2, lost=1, problem="no room")]
    assert make_report(None, sent, None) == LinkReport(None, Counts(5, 1, 0), "no room")


def test_while_the_broker_of_a_link_is_silent_nothing_is_counted_twice() -> None:
    reports, sent, taken = Reports(), Sent("p", 1, 7, left_out=3), Taken(1, {}, dropped=4)
    reports.poll(0, make_report(None, [], Taken(1, {})))
    assert reports.poll(1, make_report(None, [sent], taken))
    reports.poll(2, make_report(None, [], taken, is_complete=False))
    assert reports.poll(100, make_report(None, [sent], taken)) == []
