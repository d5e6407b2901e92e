from __future__ import annotations

import json

from bench.instruments.checker import Taken, Tally


def payload(number: int, **more: object) -> bytes:
    return json.dumps({"n": number, **more}).encode()


def heard(*messages: tuple[str | None, int]) -> Tally:
    """Messages (stamp, own number), a tenth of a second apart."""
    tally = Tally()
    for at, (stamp, number) in enumerate(messages, start=1):
        tally.hear(stamp, payload(number), at / 10)
    return tally


def test_every_number_once_is_all_well() -> None:
    count = heard(("p/1/1", 1), ("p/1/2", 2), ("p/1/3", 3)).count(3)
    assert (count.lost, count.repeated, count.reordered, count.stray, count.dropped) == (0,) * 5


def test_a_repeat_by_the_properties_is_dropped_and_not_judged() -> None:
    count = heard(("p/1/1", 1), ("p/1/2", 2), ("p/1/1", 1)).count(2)
    assert (count.dropped, count.repeated) == (1, 0)


def test_the_same_number_under_another_epoch_or_producer_is_a_repeat() -> None:
    tally = heard(("p/1/1", 1), ("p/2/1", 1), ("q/1/1", 1))
    count = tally.count(1)
    assert (count.dropped, count.repeated, count.first_repeated) == (0, 2, (1, 1))


def test_without_properties_nothing_is_dropped() -> None:
    assert heard((None, 1), (None, 1)).count(1).repeated == 1


def test_missing_numbers_are_lost_and_named() -> None:
    count = heard(("p/1/1", 1), ("p/1/4", 4)).count(5)
    assert (count.lost, count.first_lost) == (3, (2, 3, 5))


def test_a_number_below_the_highest_is_reordered_once() -> None:
    count = heard(("p/1/2", 2), ("p/1/1", 1), ("p/1/3", 3)).count(3)
    assert (count.reordered, count.lost) == (1, 0)


def test_what_was_never_published_is_stray() -> None:
    tally = heard(("p/1/1", 1), ("p/1/2", 7), ("p/1/3", 0))
    tally.hear("p/1/4", b"nonsense", 1.0)
    assert tally.count(1).stray == 3


def test_numbers_past_the_first_room_are_counted() -> None:
    assert heard(("p/1/1", 1), ("p/1/2", 200_000)).count(200_000).lost == 199_998


def test_counts_of_a_key_must_follow_each_other() -> None:
    tally = Tally()
    for number, (key, count) in enumerate([("a", 1), ("b", 1), ("a", 2), ("a", 2), ("b", 3)], 1):
        tally.hear(f"p/1/{number}", payload(number, k=key, count=count), 1.0)
    assert tally.count(5).miscounted == 2


def test_pauses_between_new_messages_are_noted() -> None:
    tally = Tally()
    for at, number in ((1.0, 1), (1.001, 2), (2.5, 3)):
        tally.hear(f"p/1/{number}", payload(number), at)
    tally.hear("p/1/3", payload(3), 9.0)  # a repeat breaks no silence
    assert tally.silences == [(1.001, 2.5)]
    assert tally.last == 2.5


def test_taken_numbers_fill_holes() -> None:
    taken = Taken()
    assert [taken.take(n) for n in (1, 3, 2, 3, 1, 4)] == [True, True, True, False, False, True]
    assert (taken.up_to, taken.above) == (4, set())
