"""Totals by key: what they say is lost, repeated or counted wrongly."""

from __future__ import annotations

import json

import pytest

from bench.instruments.totals import TotalsTally, rank


def total(number: int, count: int, key: str | None = None) -> bytes:
    return json.dumps({"n": number, "k": key or f"k{number % 16}", "count": count}).encode()


def heard(*totals: tuple[int, int]) -> TotalsTally:
    """Totals (number, count), a tenth of a second apart."""
    tally = TotalsTally()
    for at, (number, count) in enumerate(totals, start=1):
        tally.hear(f"p/1/{at}", total(number, count), at / 10)
    return tally


def test_the_rank_is_that_among_the_records_of_a_key() -> None:
    by_key: dict[int, int] = {}
    for number in range(1, 100):
        by_key[number % 16] = by_key.get(number % 16, 0) + 1
        assert rank(number) == by_key[number % 16]


def test_totals_that_hold_everything_are_all_well() -> None:
    tally = heard((1, 1), *((n, 1) for n in range(2, 17)), (33, 3), (18, 2))
    count = tally.count(18)
    assert (tally.distinct, tally.highest) == (19, 33)
    assert (count.lost, count.repeated, count.miscounted, count.stray) == (0, 0, 0, 1)


def test_what_no_total_holds_is_lost() -> None:
    tally = heard(*((n, 1) for n in range(1, 17)))
    assert tally.count(20).first_lost == (17, 18, 19, 20)


@pytest.mark.parametrize(("count", "why"), [(1, "a record was lost"), (3, "one counted twice")])
def test_a_total_that_does_not_follow_from_its_number_is_miscounted(count: int, why: str) -> None:
    assert heard((17, count)).count(17).miscounted == 1, why


def test_a_total_that_comes_again_is_repeated_unless_its_stamp_says_so() -> None:
    tally = heard((17, 2), (17, 2))
    tally.hear("p/1/1", total(17, 2), 9.0)
    count = tally.count(1)
    assert (count.repeated, count.dropped) == (1, 1)


def test_what_is_no_total_is_stray() -> None:
    tally = TotalsTally()
    for payload in (b"", b"[]", b'{"n": 1}', total(3, 1, "k4")):
        tally.hear(None, payload, 1.0)
    assert tally.count(0).stray == 4


def test_silences_lie_between_totals() -> None:
    assert heard((1, 1), (2, 1)).silences == [(0.1, 0.2)]
