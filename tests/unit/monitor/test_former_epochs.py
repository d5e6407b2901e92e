"""The last numbers of sinks that number anew are stored with the sessions of outside readers."""

from __future__ import annotations

from dataclasses import replace

from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.observation import Sent
from speck.monitor.former_epochs import add_owed, begin_epoch, find_newest

SESSION = Session("q-db", Link("edge-a", "T"), "edge-a", None)


def sent(epoch: int, number: int = 1, producer: str = "i-A") -> Sent:
    return Sent(producer, epoch, number, 1, topic="T")


def test_an_epoch_whose_end_nobody_saw_leaves_the_number_unknown() -> None:
    begun = begin_epoch(SESSION, sent(5))
    assert (begun.running, begun.fed_outside) == ((("i-A", 5),), False)
    assert begin_epoch(begun, sent(5, 9)) == begun
    missed = begin_epoch(begun, sent(3))  # without state it may be a lower one
    assert (missed.running, missed.fed_outside) == ((("i-A", 3),), True)


def test_an_epoch_whose_last_number_is_stored_is_not_missed() -> None:
    ended = add_owed(begin_epoch(SESSION, sent(5)), sent(5, 9))
    assert (ended.owed, ended.running) == ((("i-A", 5, 9),), ())
    assert not begin_epoch(ended, sent(6)).fed_outside


def test_other_producers_number_for_themselves() -> None:
    both = begin_epoch(begin_epoch(SESSION, sent(5)), sent(6, producer="i-B"))
    assert (both.running, both.fed_outside) == ((("i-A", 5), ("i-B", 6)), False)


def test_a_sink_that_a_producer_has_left_numbers_no_more() -> None:
    reports = {"old": sent(5), "new": sent(6), "foreign": replace(sent(7), topic=None)}
    assert find_newest(reports) == {"new": sent(6)}
