"""Messages at the end of a sink's numbers that a killed broker has forgotten are counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from speck.model.observation import BrokerView, Sent, Taken
from speck.monitor.links import FOR_GOOD_S, ReaderOf
from speck.monitor.lost_tails import TailMemory, judge_tails

READERS = {"edge-a": [ReaderOf("reader", "T", "B", "c", ("sink",))]}
PRODUCER = "i-A"


def view(
    number: int | None,
    taken: dict[int, int] | None,
    at: int,
    epoch: int = 5,
    above: dict[int, tuple[tuple[int, int], ...]] | None = None,
) -> BrokerView:
    """The sink reports `number`, and the reader, at the time `at`, what it has `taken`."""
    sent = {"sink": Sent(PRODUCER, epoch, number, topic="T")} if number is not None else {}
    report = Taken(1, {PRODUCER: taken}, at_ms=at, above={PRODUCER: above or {}}) if taken else None
    return BrokerView({"reader": report} if report else {}, sent)


def judge(views: Sequence[BrokerView | None]) -> list[int]:
    """The counts that are reported of these views, each of which comes a minute later."""
    memory: TailMemory = {}
    counts = []
    for minute, each in enumerate(views):
        memory, news = judge_tails(minute * FOR_GOOD_S, {"edge-a": each}, READERS, memory)
        counts += [item.count for item in news]
        assert all((n.kind, n.site, n.producer) == ("lost", "edge-a", PRODUCER) for n in news)
    return counts


def test_what_a_stopped_sink_had_sent_is_lost_where_no_queue_has_it() -> None:
    before = [view(100, {5: 60}, 1), view(80, {5: 60}, 1)]
    assert judge([*before, view(80, {5: 60}, 2), view(80, {5: 80}, 3)]) == [20]


def test_what_its_reader_had_taken_is_not_lost() -> None:
    before = [view(100, {5: 60}, 1), view(80, {5: 60}, 1)]
    assert judge([*before, view(80, {5: 90}, 2)]) == [10]
    assert judge([*before, view(80, {5: 100}, 2)]) == []


def test_a_reader_that_does_not_run_is_asked_once_it_does() -> None:
    before = [view(100, {5: 60}, 1), view(80, {5: 60}, 1)]
    away = [view(80, {5: 60}, 1)] * 20
    assert judge([*before, *away]) == []
    assert judge([*before, *away, view(80, {5: 80}, 2)]) == [20]


def test_a_sink_that_runs_sends_it_again() -> None:
    before = [view(100, {5: 60}, 1), view(80, {5: 60}, 1)]
    assert judge([*before, view(100, {5: 100}, 2), view(150, {5: 150}, 3)]) == []
    assert judge([*before, view(90, {5: 90}, 2), view(100, {5: 100}, 3)]) == []


def test_a_number_that_had_been_cleared_and_comes_back_is_a_broker_that_forgot_it() -> None:
    before = [view(100, {5: 60}, 1), view(None, {5: 100}, 2), view(80, {5: 60}, 1)]
    assert judge([*before, view(80, {5: 80}, 3)]) == [20]
    assert judge([*before, view(80, {5: 100}, 3)]) == []


@pytest.mark.parametrize(
    ("taken", "lost"),
    [
        ({5: 100, 6: 7}, []),
        ({5: 80, 6: 7}, [20]),
        ({5: 80}, []),  # it has not got that far
        ({6: 7}, []),  # it reports the last few epochs only
    ],
)
def test_the_end_of_an_epoch_is_lost_if_a_reader_has_gone_on_without_it(
    taken: dict[int, int], lost: list[int]
) -> None:
    """A sink that failed with its broker has kept in its checkpoint what it could."""
    before = [view(100, {5: 60}, 1), view(3, {5: 60}, 1, epoch=6)]
    assert judge([*before, view(7, taken, 2, epoch=6), view(7, taken, 3, epoch=6)]) == lost


def test_a_broker_that_was_away_for_long_is_asked_for_what_it_had_reported() -> None:
    away = [None] * 30
    assert judge([view(100, {5: 60}, 1), *away, view(80, {5: 60}, 1), view(80, {5: 80}, 2)]) == [20]
    later = [view(3, {5: 60}, 1, epoch=6), view(7, {5: 80, 6: 7}, 2, epoch=6)]
    assert judge([view(100, {5: 60}, 1), *away, *later]) == [20]


def test_gaps_before_the_end_are_counted_as_gaps() -> None:
    before = [view(100, {5: 60}, 1), view(80, {5: 60}, 1)]
    assert judge([*before, view(80, {5: 60}, 2, above={5: ((90, 95),)})]) == [5]


def test_a_reader_that_reports_nothing_of_the_epoch_and_other_topics_are_left_alone() -> None:
    before = [view(100, None, 1), view(80, None, 1)]
    assert judge([*before, view(80, None, 2), view(80, {4: 3}, 3)]) == []
    assert judge([None, *before, None]) == []
