"""A cluster's figures, from places and logs alone."""

from __future__ import annotations

from binders.kafka.places import Extent, Log, Place, Places
from binders.kafka.totals import Totals
from speck.model.measurement import BrokerMeasures


def logs(start: int, end: int, id_: str = "t1") -> dict[str, Log]:
    return {"t": Log(id_, {0: Extent(start, end)})}


def at(offset: int, reader: str = "r") -> dict[tuple[str, str], Places]:
    return {(reader, "t"): {0: Place(offset)}}


def test_sums_follow_the_ends_and_the_places() -> None:
    totals = Totals()
    assert totals.measure(at(4), logs(0, 10)) == BrokerMeasures(10, 0, dropped=0, queued=6)
    assert totals.measure(at(9), logs(0, 12)) == BrokerMeasures(12, 5, dropped=0, queued=3)
    assert totals.measure(at(9), logs(0, 12)) == BrokerMeasures(12, 5, dropped=0, queued=3)


def test_a_reader_that_comes_to_the_end_of_a_link_has_read_nothing_yet() -> None:
    totals = Totals()
    totals.measure({}, logs(0, 10))
    assert totals.measure(at(10), logs(0, 10)).messages_out == 0


def test_what_is_deleted_before_its_reader_took_it_was_dropped_and_not_read() -> None:
    totals = Totals()
    totals.measure(at(3), logs(0, 10))
    assert totals.measure(at(3), logs(8, 10)) == BrokerMeasures(10, 0, dropped=5, queued=2)
    assert totals.measure(at(10), logs(8, 10)) == BrokerMeasures(10, 2, dropped=5, queued=0)


def test_a_place_that_goes_back_and_a_log_that_is_made_anew_take_nothing_away() -> None:
    totals = Totals()
    totals.measure(at(2), logs(0, 10))
    totals.measure(at(8), logs(0, 10))
    assert totals.measure(at(5), logs(0, 10)).messages_out == 6
    assert totals.measure(at(8), logs(0, 10)).messages_out == 6
    assert totals.measure(at(0), logs(0, 3, "t2")) == BrokerMeasures(13, 6, dropped=0, queued=3)


def test_each_reader_of_a_link_counts() -> None:
    totals = Totals()
    both = {**at(0, "a"), **at(0, "b")}
    assert totals.measure(both, logs(0, 7)).queued == 14
    assert totals.measure({**at(7, "a"), **at(3, "b")}, logs(0, 7)).messages_out == 10
