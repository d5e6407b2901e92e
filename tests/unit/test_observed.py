"""How far a reader lags, by the numbers that brokers keep."""

from __future__ import annotations

import pytest

from speck.observed import BrokerView, Sent, Taken

FIRST, SECOND = (1 << 32) + 7, (2 << 32) + 7
"""Epochs of one producer, in the order in which they began."""


def lag(taken: dict[int, int] | None, *sent: tuple[int, int]) -> int | None:
    """Of the producer P, whose sinks told these (epoch, number), by what the reader lists."""
    view = BrokerView(
        {} if taken is None else {"reader": Taken(1, {"P": taken})},
        {f"{index}-out": Sent("P", epoch, number) for index, (epoch, number) in enumerate(sent)},
    )
    return view.lag("reader", list(view.sent))


@pytest.mark.parametrize(
    ("taken", "sent", "waiting"),
    [
        (None, [(FIRST, 5)], 5),
        ({}, [(FIRST, 5)], 5),
        ({FIRST: 2}, [(FIRST, 5)], 3),
        ({FIRST: 7}, [(FIRST, 5)], 0),
        ({FIRST: 2}, [(FIRST, 5), (SECOND, 4)], 7),
        ({FIRST: 5}, [(FIRST, 5), (SECOND, 4)], 4),
        ({FIRST: 2, SECOND: 1}, [(FIRST, 5), (SECOND, 4)], 6),
    ],
)
def test_what_was_sent_and_not_taken_lags(
    taken: dict[int, int] | None, sent: list[tuple[int, int]], waiting: int
) -> None:
    assert lag(taken, *sent) == waiting


def test_an_epoch_not_listed_any_more_was_taken_before_a_later_one_of_the_link() -> None:
    assert lag({SECOND: 1}, (FIRST, 5), (SECOND, 4)) == 3
    assert lag({SECOND: 4}, (FIRST, 5), (SECOND, 4)) == 0


def test_an_earlier_epoch_says_nothing_of_a_later_one() -> None:
    assert lag({FIRST: 5}, (FIRST, 5), (SECOND, 4)) == 4


def test_a_later_epoch_that_no_sink_of_the_link_tells_of_proves_nothing() -> None:
    """A job of the same name that was in another composition has had higher attempts."""
    assert lag({SECOND: 9}, (FIRST, 5)) == 5


def test_a_later_epoch_of_another_producer_proves_nothing() -> None:
    view = BrokerView(
        {"reader": Taken(1, {"Q": {SECOND: 4}})},
        {"P-out": Sent("P", FIRST, 5), "Q-out": Sent("Q", SECOND, 4)},
    )
    assert view.lag("reader", ["P-out", "Q-out"]) == 5


def test_the_lag_behind_a_sink_that_told_nothing_is_not_known() -> None:
    view = BrokerView({}, {"P-out": Sent("P", FIRST, 5)})
    assert view.lag("reader", ["P-out", "Q-out"]) is None
    assert view.lag("reader", []) is None
