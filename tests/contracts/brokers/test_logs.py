"""Brokers that keep logs: positions, parts, and what is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.monitor.links import FOR_GOOD_S, LinkMemory, ReaderOf, judge_links
from tests.contracts.brokers.benches import Bench, CanalBench, LogBench
from tests.third_party_kinds import third_party


def test_a_broker_that_keeps_logs_knows_what_everybody_has_sent_and_taken(bench: Bench) -> None:
    broker = bench.open()
    topic = bench.topic("traffic/a")
    bench.publish(topic, [b"before"])
    broker.reserve("one", topic)
    bench.publish(topic, [b"x"] * 5)
    view = broker.view(["one"])
    assert bool(view.ends) == bench.keeps_logs
    if not bench.keeps_logs:
        assert view.lag("one", topic, []) is None, "nobody reports what they have sent"
        return
    assert view.lag("one", topic, []) == 5
    assert view.knows(topic, "anybody")
    assert view.untaken("one", view.find_last(topic, [])) == 5
    broker.reserve("two", topic)
    assert broker.view(["two"]).lag("two", topic, []) == 0


def test_a_place_that_is_lost_is_made_again_where_its_reader_was_last_seen(
    canal: LogBench,
) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.publish("t", [b"0", b"1", b"2"])
    assert broker.view().find_position("one", "t") == made.position
    canal.lose("one", "t")
    assert broker.view().sessions == frozenset()
    assert broker.reserve("one", "t", lost=True, at=made.position) == replace(made, existed=False)
    assert sorted(canal.drain("one")) == [b"0", b"1", b"2"]
    assert broker.view().lag("one", "t", []) == 3
    assert broker.reserve("one", "t", at={}) == replace(made, existed=True), "it is there"

    canal.lose("one", "t")
    assert broker.reserve("one", "t").position == broker.view().ends["t"], "nothing is known of it"


def test_a_position_that_was_deleted_is_told_as_missing(canal: LogBench) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.publish("t", [b"%d" % number for number in range(9)])
    canal.lose("one", "t")
    deleted = canal.trim("t", 2)
    broker.reserve("one", "t", at=made.position)
    missing = broker.view().taken["one"].missing
    assert sum(number for epochs in missing.values() for number in epochs.values()) == deleted


@pytest.mark.parametrize("way", ["cut", "make_anew"])
def test_a_place_behind_the_end_of_a_log_is_lost(canal: LogBench, way: str) -> None:
    """Nothing of the log counts as taken, neither for a lag nor for a drain."""
    broker = canal.open()
    canal.publish("t", [b"%d" % number for number in range(9)])
    seen = broker.reserve("one", "t").position
    canal.cut("t") if way == "cut" else canal.make_anew("t")
    canal.publish("t", [b"a", b"b"])
    view = broker.view()
    total = sum(view.ends["t"].values())
    assert ("one", "t") not in view.sessions
    assert view.lag("one", "t", []) == total
    assert not view.has_last("one", view.find_last("t", []))
    canal.publish("t", [b"c"] * 20)  # grown past the place, it looks as before
    if way == "make_anew":
        assert broker.view().lag("one", "t", []) == 22
        assert not broker.reserve("one", "t", lost=True, at=seen).existed
        assert len(canal.drain("one")) == 22


def test_each_log_with_a_place_has_its_end(canal: LogBench) -> None:
    broker = canal.open()
    broker.reserve("one", "t")
    broker.reserve("one", "other")
    canal.publish("other", [b"x"])
    view = broker.view()
    assert (view.lag("one", "t", ["sink"]), view.lag("one", "other", [])) == (0, 1)
    assert view.knows("t", "sink")


def test_a_part_that_is_added_is_read_from_its_beginning(canal: LogBench) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.add_part("t", [b"new"])
    assert broker.view().lag("one", "t", []) == 1
    canal.lose("one", "t")
    broker.reserve("one", "t", at=made.position)
    assert canal.drain("one") == [b"new"]


def test_what_a_log_has_deleted_before_it_was_taken_is_lost_and_counted() -> None:
    """By the places alone: the reader need not even come."""
    with third_party():
        bench = CanalBench()
        broker = bench.open()
        broker.reserve("one", "raw")
        bench.publish("raw", [b"x"] * 10)
        (part,) = bench.canal.ends("raw")
        bench.canal.commit("one", "raw", {part: 3})
        readers = {"site": [ReaderOf("one", "raw", None, "c")]}
        memory, news = judge_links(0.0, {"site": broker.view()}, readers, LinkMemory())
        assert news == []
        bench.canal.trim("raw", 7)
        counts = []
        for now in (1.0, FOR_GOOD_S + 2.0):
            memory, news = judge_links(now, {"site": broker.view()}, readers, memory)
            counts.append([(each.kind, each.count) for each in news])
        assert counts == [[("lost", 4)], []], "at once: what was deleted does not come later"
