"""Places in Kafka's logs as positions."""

from __future__ import annotations

import json

from binders.kafka.places import (
    Extent,
    Log,
    Place,
    begin,
    find_there,
    position_of,
    read_report,
    taken_of,
    write_report,
)

LOG = Log("id", {0: Extent(3, 10), 1: Extent(0, 4)})


def test_a_place_begins_at_the_end_or_where_its_reader_was_last_seen() -> None:
    assert begin(LOG, None) == {0: 10, 1: 4}
    assert begin(LOG, {("id/0", 0): 7}) == {0: 7, 1: 0}, "a part that is not named: all of it"
    assert begin(LOG, {("id/0", 0): 11, ("id/1", 0): 4}) == {0: 0, 1: 4}, "it was cut"
    assert begin(LOG, {("former/0", 0): 9}) == {0: 0, 1: 0}, "it was made anew"


def test_places_of_another_log_are_none() -> None:
    assert find_there({0: Place(10), 1: Place(2)}, LOG) == {0: Place(10), 1: Place(2)}
    assert find_there({0: Place(5)}, LOG) == {0: Place(5)}
    assert find_there({0: Place(11), 1: Place(2)}, LOG) is None, "behind the end"
    assert find_there({0: Place(5, {"id": "former"})}, LOG) is None
    assert find_there({7: Place(5)}, LOG) is None
    assert position_of({0: Place(5)}, LOG) == {("id/0", 0): 5}


def test_what_was_deleted_before_it_was_taken_is_missing() -> None:
    taken = taken_of({"t": {0: Place(1)}}, {"t": LOG})
    assert taken.taken == {"id/0": {0: 1}, "id/1": {0: 0}}
    assert taken.missing == {"id/0": {0: 2}}
    assert (taken.checkpoint, taken.messages, taken.at_ms) == (1, 1, 1), "they rise with it"


def test_what_a_reader_reports_beside_its_place_is_read() -> None:
    report = write_report(
        id="id",
        at=99,
        checkpoint=7,
        messages=40,
        dropped=2,
        missing={"abc": {"3": 5}, "bad": {"x": 1}, "worse": 3},
    )
    places = {0: Place(5, read_report(report)), 1: Place(4)}
    taken = taken_of({"t": places}, {"t": LOG})
    assert (taken.checkpoint, taken.messages, taken.at_ms, taken.dropped) == (7, 40, 99, 2)
    assert taken.missing == {"abc": {3: 5}, "bad": {}}
    assert taken.taken == {"id/0": {0: 5}, "id/1": {0: 4}}


def test_what_others_write_beside_an_offset_is_left_alone() -> None:
    for text in (None, "", "text", "[1]", "7", json.dumps({"v": 2, "id": "x"}), "{" * 5000):
        assert read_report(text) == {}
    wild = json.dumps({"v": 1, "checkpoint": "x", "messages": -1, "at": 1e9, "missing": [1]})
    taken = taken_of({"t": {0: Place(5, read_report(wild)), 1: Place(4)}}, {"t": LOG})
    assert (taken.checkpoint, taken.messages, taken.at_ms, taken.missing) == (0, 0, 0, {})
