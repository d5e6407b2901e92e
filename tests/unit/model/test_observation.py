"""How far a reader lags, by the numbers that brokers keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.model.observation import BrokerView, Sent, Taken, TakenEpoch, includes, merge_taken

FIRST, SECOND = (1 << 32) + 7, (2 << 32) + 7
"""Epochs of one producer, in the order in which they began."""


def lag(taken: dict[int, int] | None, *sent: tuple[int, int]) -> int | None:
    """The lag behind producer P, whose sinks published these (epoch, number), by the reader's
    report."""
    view = BrokerView(
        {} if taken is None else {"reader": Taken(1, {"P": taken})},
        {f"{index}-out": Sent("P", epoch, number) for index, (epoch, number) in enumerate(sent)},
    )
    return view.lag("reader", "t", list(view.sent))


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


@pytest.mark.parametrize(
    ("upto", "above", "waiting"),
    [
        (0, ((4, 9),), 0),
        (0, ((4, 7),), 2),
        (0, ((4, 5), (8, 9)), 2),
        (0, ((4, 12),), 0),
        (2, ((4, 9),), 1),
        (2, ((4, 5), (8, 12)), 3),
        (0, ((11, 12),), 0),
    ],
)
def test_what_a_reader_has_taken_past_a_hole_does_not_lag(
    upto: int, above: tuple[tuple[int, int], ...], waiting: int
) -> None:
    """Without the beginning it came after what lies below the first that it has."""
    taken = Taken(1, {"P": {FIRST: upto}}, above={"P": {FIRST: above}})
    view = BrokerView({"reader": taken}, {"P-out": Sent("P", FIRST, 9)})
    assert view.lag("reader", "t", ["P-out"]) == waiting


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
    assert view.lag("reader", "t", ["P-out", "Q-out"]) == 5


def test_the_lag_behind_a_sink_that_told_nothing_is_not_known() -> None:
    view = BrokerView({}, {"P-out": Sent("P", FIRST, 5)})
    assert view.lag("reader", "t", ["P-out", "Q-out"]) is None
    assert view.lag("reader", "t", []) is None


# -- what was sent to which topic ---------------------------------------------------------


def test_what_a_sink_sent_to_another_topic_is_not_of_this_one() -> None:
    here, elsewhere, silent = (
        Sent("P", 1, 5, topic="t"),
        Sent("Q", 1, 5, topic="u"),
        Sent("R", 1, 5),
    )
    view = BrokerView({}, {"P-out": here, "Q-out": elsewhere, "R-out": silent})
    assert view.find_sent("t", "P-out") == here
    assert view.find_sent("t", "Q-out") is None
    assert view.find_sent("t", "R-out") == silent, "it does not say where to"
    assert view.find_sent("t", "never-was") is None
    assert view.sinks_of("t", ["R-out", "Q-out", "never-was", "P-out"]) == ["R-out", "P-out"]


# -- what several readers have taken ------------------------------------------------------


def epoch_of(numbers: frozenset[int], producer: str = "P", epoch: int = FIRST) -> TakenEpoch:
    """As a reader reports that it has taken these numbers."""
    upto = next(n for n in range(len(numbers) + 1) if n + 1 not in numbers)
    above: list[tuple[int, int]] = []
    for number in sorted(n for n in numbers if n > upto):
        if above and number == above[-1][1] + 1:
            above[-1] = (above[-1][0], number)
        else:
            above.append((number, number))
    return TakenEpoch(producer, epoch, upto, tuple(above))


def numbers_of(taken: TakenEpoch) -> set[int]:
    above = {n for first, last in taken.above for n in range(first, last + 1)}
    return {*range(1, taken.upto + 1), *above}


def test_a_report_is_read_in_the_readers_order_of_epochs() -> None:
    taken = Taken(1, {"P": {SECOND: 4, FIRST: 2}, "Q": {FIRST: 1}}, above={"P": {FIRST: ((5, 6),)}})
    assert taken.epochs() == (
        TakenEpoch("P", SECOND, 4),
        TakenEpoch("P", FIRST, 2, ((5, 6),)),
        TakenEpoch("Q", FIRST, 1),
    )


def test_what_was_taken_by_several_is_joined_where_it_meets() -> None:
    one = TakenEpoch("P", FIRST, 4, ((8, 9),))
    other = TakenEpoch("P", FIRST, 2, ((5, 6), (10, 10), (20, 20)))
    assert merge_taken([one], [other]) == (TakenEpoch("P", FIRST, 6, ((8, 10), (20, 20))),)


def test_epochs_and_producers_are_kept_apart_in_the_order_in_which_they_appear() -> None:
    old = [TakenEpoch("P", SECOND, 1), TakenEpoch("Q", FIRST, 2)]
    new = [TakenEpoch("P", FIRST, 3), TakenEpoch("P", SECOND, 4)]
    assert merge_taken(old, new) == (
        TakenEpoch("P", SECOND, 4),
        TakenEpoch("Q", FIRST, 2),
        TakenEpoch("P", FIRST, 3),
    )
    assert merge_taken() == ()


SETS = st.frozensets(st.integers(1, 24))
PARTS = st.lists(st.dictionaries(st.sampled_from(["P", "Q"]), SETS), max_size=4)


@given(PARTS)
def test_merged_are_exactly_the_numbers_that_any_has_taken(
    parts: list[dict[str, frozenset[int]]],
) -> None:
    merged = merge_taken(*([epoch_of(ns, name) for name, ns in part.items()] for part in parts))
    expected: dict[str, frozenset[int]] = {}
    for part in parts:
        for name, numbers in part.items():
            expected[name] = expected.get(name, frozenset()) | numbers
    assert merged == tuple(epoch_of(numbers, name) for name, numbers in expected.items())
    assert {each.producer: numbers_of(each) for each in merged} == expected
    assert merge_taken(merged, merged) == merged


@pytest.mark.parametrize(
    ("producer", "epoch", "number", "expected"),
    [
        ("P", 1, 4, True),
        ("P", 1, 5, False),
        ("P", 1, 7, True),
        ("P", 2, 1, False),
        ("Q", 1, 1, False),
    ],
)
def test_what_was_taken_includes_a_message(
    producer: str, epoch: int, number: int, *, expected: bool
) -> None:
    taken = [TakenEpoch("P", 1, 4, ((6, 7),))]
    assert includes(taken, producer, epoch, number) is expected


def test_what_was_never_taken_within_a_limit_is_not_missing() -> None:
    """Numbers that went over other links are holes, of the limit as of the reader."""
    within = (
        TakenEpoch("p", 1, 3, ((8, 9),)),
        TakenEpoch("q", 1, 0, ((5, 6),)),
        TakenEpoch("r", 7, 4),
    )
    last = {("p", 1): 9, ("q", 1): 6, ("r", 7): 4}
    reported = Taken(
        9, {"p": {1: 3}, "q": {1: 0}, "r": {7: 2}}, above={"p": {1: ((8, 9),)}, "q": {1: ((5, 6),)}}
    )
    view = BrokerView(taken={"reader": reported}, sent={})
    assert view.untaken("reader", last) == 4 + 2
    assert view.untaken("reader", last, within) == 2
    assert view.untaken("unknown", last, within) == 5 + 6 + 4
