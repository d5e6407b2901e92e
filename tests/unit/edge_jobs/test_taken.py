"""Which records a reader has taken, against a plain set of numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speck_link import numbers
from speck_link.numbers import NumberRanges
from speck_link.taken import TakenNumbers, Until, parse_hand_over, split_stamp

from binders.mqtt.bookkeeping import parse_taken
from speck.model.observation import TakenEpoch
from speck.spec.job_contract import render_taken

NUMBERS = st.lists(st.integers(1, 40), max_size=60)


@given(NUMBERS)
def test_ranges_are_what_a_set_would_be(added: list[int]) -> None:
    ranges, plain = NumberRanges(), set[int]()
    ranges.add(0)
    for number in added:
        assert ranges.add(number) is (number not in plain)
        plain.add(number)
    highest = max(plain, default=0)
    assert ranges.highest == highest
    assert ranges.missing == highest - len(plain)
    upto = next(n for n in range(42) if n + 1 not in plain)
    assert ranges.contiguous == upto
    above = {n for first, last in ranges.above for n in range(first, last + 1)}
    assert above == {n for n in plain if n > upto}
    copy = NumberRanges.from_json(json.loads(json.dumps(ranges.to_json())))
    assert copy.to_json() == ranges.to_json()


@given(NUMBERS, st.integers(0, 20), st.lists(st.integers(22, 40), max_size=5))
def test_what_another_reader_has_taken_is_a_union(
    added: list[int], upto: int, singles: list[int]
) -> None:
    taken = TakenNumbers()
    taken.use_link("c")
    for number in added:
        taken.take("p/1/", number)
    above = ",".join(f"{n}-{n}" for n in singles)
    text = f"p/1/{upto}" + (f"/{above}" if above else "")
    entries = parse_hand_over("taken", text)
    for _ in range(2):  # again it changes nothing
        taken.take_over(entries)
    known = set(added) | set(range(1, upto + 1)) | set(singles)
    for number in range(1, 42):
        assert taken.take("p/1/", number) is (number not in known)


def test_a_reader_that_comes_late_misses_nothing() -> None:
    taken = TakenNumbers()
    taken.use_link("c")
    assert taken.take("p/1/", 7)
    assert taken.missing == 0
    assert taken.take("p/1/", 9)
    assert taken.missing == 1
    assert taken.take("p/2/", 2)
    assert taken.missing == 2, "a later epoch is known to begin at 1"
    assert taken.take("p/1/", 3), "it was not for us, and is taken all the same"


def test_another_link_begins_anew() -> None:
    taken = TakenNumbers()
    taken.use_link("c")
    assert [taken.take("p/1/", n) for n in (1, 2, 4)] == [True] * 3
    taken = TakenNumbers.from_json(taken.to_json())
    taken.use_link("d")
    assert taken.take("p/1/", 10)
    assert taken.missing == 1, "that of the former link alone"
    assert not taken.take("p/1/", 10)


def test_old_epochs_are_forgotten_with_their_holes() -> None:
    taken = TakenNumbers()
    taken.use_link("c")
    for epoch in range(1, 4 + numbers.MAX_EPOCHS):
        taken.take(f"p/{epoch}/", 1)
        taken.take(f"p/{epoch}/", 3)
    assert taken.lost == 3
    assert taken.missing == 3 + numbers.MAX_EPOCHS


def test_holes_beyond_the_bound_are_lost() -> None:
    ranges = NumberRanges()
    for number in range(1, 2 * numbers.MAX_RANGES + 11, 2):
        ranges.add(number)
    assert len(ranges.ranges) == numbers.MAX_RANGES
    assert ranges.lost == 5
    assert not ranges.add(2)


@given(st.lists(st.tuples(st.sampled_from("pq/x"), st.integers(0, 3), st.integers(1, 20))))
def test_the_service_reads_what_is_announced(taken_of: list[tuple[str, int, int]]) -> None:
    taken = TakenNumbers()
    taken.use_link("c")
    for producer, epoch, number in taken_of:
        taken.take(f"{producer}/{epoch}/", number)
    read = parse_taken(taken.announce(5, 7, 0, "ab"))
    assert (read.checkpoint, read.at_ms, read.mark) == (7, 5, "ab")
    assert read.messages == taken.messages
    again = TakenNumbers()
    again.use_link("c")
    again.take_over(parse_hand_over("taken", render_taken(read.epochs())))
    for producer, epoch, number in taken_of:
        kept = epoch in read.taken.get(producer, {})
        assert again.take(f"{producer}/{epoch}/", number) is not kept


def test_arguments_are_read_as_they_are_written() -> None:
    entries = (TakenEpoch("a/b;c", 3, 7, ((9, 9), (12, 20))), TakenEpoch("ü", 1, 0))
    parsed = parse_hand_over("taken", render_taken(entries))
    assert [tuple(each) for each in parsed] == [
        ("a/b;c", 3, 7, ((9, 9), (12, 20))),
        ("ü", 1, 0, ()),
    ]
    until = Until(parsed)
    assert until.includes("a/b;c/3/", 12)
    assert not until.includes("a/b;c/3/", 11)
    assert not until.includes("other/3/", 1)


@pytest.mark.parametrize(
    "text", ["p", "p/1", "p/x/2", "p/1/2/3", "p/1/2/5-3", "/1/2", "p/1/2/3-4/5"]
)
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"^cannot use --taken: "):
        parse_hand_over("taken", text)


@pytest.mark.parametrize(
    ("stamp", "parts"),
    [
        ("p/1/7", ("p/1/", 7)),
        ("a/b/1/7", ("a/b/1/", 7)),
        (None, ("", -1)),
        ("7", ("", -1)),
        ("p/1/0", ("", -1)),
        ("p/1/x", ("", -1)),
        ("p/1/" + "9" * 30, ("", -1)),
    ],
)
def test_stamps(stamp: str | None, parts: tuple[str, int]) -> None:
    assert split_stamp(stamp) == parts
