"""Marks, taps and records, and patterns of topics."""

from __future__ import annotations

import time

import pytest

from speck.binding import BrokerCapability, topic_matches
from speck.model.record import Record
from tests.contracts.brokers.benches import Bench
from tests.declared import Need
from tests.third_party_kinds import third_party


def test_a_mark_goes_through_the_session_of_its_reader_behind_what_waits_there(
    bench: Bench,
    need: Need,
) -> None:
    broker = need(bench.open(), BrokerCapability.MARKS)
    for client_id in ("one", "two"):
        broker.reserve(client_id, bench.topic("traffic/a"))
        bench.attach(client_id, bench.topic("traffic/a"))
    payloads = [b"%d" % number for number in range(100)]
    bench.publish(bench.topic("traffic/a"), payloads)
    assert broker.mark("one", "0af9")
    bench.publish(bench.topic("traffic/a"), [b"later"])
    assert broker.mark("one", "1b")

    broker.reserve("one", bench.topic("traffic/a"))

    assert bench.drain_with_marks("one") == [*payloads, b"0af9", b"later", b"1b"]
    assert bench.drain_with_marks("two") == [*payloads, b"later"]


def test_a_session_takes_no_marks_before_its_reader_was_there(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.MARKS)
    assert not broker.mark("nobody", "0af9")
    broker.reserve("one", bench.topic("traffic/a"))
    assert not broker.mark("one", "0af9")
    bench.attach("one", bench.topic("traffic/a"))
    assert broker.mark("one", "0af9")
    broker.release("one", bench.topic("traffic/a"), last_reader=True)
    assert not broker.mark("one", "0af9")


def test_published_records_reach_readers_in_order_and_those_without_one_are_counted(
    bench: Bench,
) -> None:
    broker = bench.open()
    payloads = [b"%d" % number for number in range(100)]
    assert broker.publish(bench.topic("traffic/a"), payloads) == 100
    broker.reserve("one", bench.topic("traffic/a"))
    assert broker.publish(bench.topic("traffic/a"), payloads) == 0
    assert bench.drain("one") == payloads


def test_a_tap_sees_what_is_published_and_leaves_the_readers_alone(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    payloads = [b"\x00\xff", b"", "\u00e9".encode()]
    seen: list[Record] = []
    until = time.monotonic() + 30

    def go_on() -> bool:  # published again and again: the tap says not when it has begun
        bench.publish(bench.topic("traffic/a"), payloads)
        return len(seen) < 6 and time.monotonic() < until

    bench.open().tap(bench.topic("traffic/a"), seen.append, go_on)
    assert [record.payload for record in seen[:6]] == payloads * 2
    assert {record.stamp for record in seen} == {None}
    waiting = bench.drain("one")
    assert waiting == payloads * (len(waiting) // 3)
    assert broker.publish(bench.topic("traffic/b"), [b"x"]) == 1, "something of the tap is left"


def test_a_tap_ends_when_it_is_told_to(bench: Bench) -> None:
    asked = iter([True, True, False])
    bench.open().tap(bench.topic("traffic/a"), lambda _: None, lambda: next(asked))
    assert next(asked, None) is None


@pytest.mark.parametrize("kind", ["memory", "mqtt", "canal", "kafka"])
def test_a_topic_fits_a_pattern_that_is_the_topic_and_no_other_topic(kind: str) -> None:
    """Whatever the syntax of patterns is: a binder without one has topics alone."""
    with third_party():
        assert topic_matches(kind, "traffic.a", "traffic.a")
        assert not topic_matches(kind, "traffic.a", "traffic.b")
        assert not topic_matches(kind, "traffic.a", "traffic")


@pytest.mark.parametrize(
    ("kind", "pattern", "is_fit"),
    [
        ("mqtt", "traffic/#", True),
        ("mqtt", "+/a", True),
        ("mqtt", "#", True),
        ("mqtt", "other/#", False),
        ("mqtt", "traffic/*", False),
        ("canal", "traffic/#", False),
        ("canal", "#", False),
    ],
)
def test_patterns_of_topics_are_those_of_their_kind(kind: str, pattern: str, is_fit: bool) -> None:
    with third_party():
        assert topic_matches(kind, "traffic/a", pattern) is is_fit
