"""The last numbers of sinks that number anew are stored with the sessions of outside readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import Session
from speck.model.link import Link
from speck.model.observation import BrokerView, Sent, Taken
from speck.model.unread import EPOCHS_KEPT, count_unread, fold_owed
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


def unread(session: Session) -> int:
    return count_unread(BrokerView({}, {}), session, ())


@pytest.mark.parametrize("since", [(), (("i-A", 0, 3), ("i-A", 40, 5), ("i-B", 0, 1))])
def test_restarts_without_end_leave_few_numbers_and_the_right_count(
    since: tuple[tuple[str, int, int], ...],
) -> None:
    whole = folded = replace(SESSION, since=since)
    for epoch in range(500):
        for producer in ("i-A", "i-B"):
            last = sent(epoch, 1 + epoch % 7, producer)
            whole, folded = add_owed(whole, last), fold_owed(add_owed(folded, last), ())
            assert unread(folded) == unread(whole)
    assert len(whole.owed) > 900 and len(folded.owed) == 2 * EPOCHS_KEPT


def test_epochs_whose_numbers_come_again_are_not_counted_twice() -> None:
    session, reported = SESSION, {("i-A", 3), ("i-A", 7)}
    for epoch in range(100):
        session = fold_owed(add_owed(session, sent(epoch, 2)), reported)
    for _ in range(3):
        for producer, epoch in sorted(reported):
            session = fold_owed(add_owed(session, sent(epoch, 2, producer)), reported)
    assert unread(session) == 200
    assert len(session.owed) == EPOCHS_KEPT + len(reported)


def test_a_reader_that_reports_has_taken_earlier_epochs_with_a_later_one() -> None:
    session = SESSION
    for epoch in range(100):
        session = fold_owed(add_owed(session, sent(epoch, 2)), ())
    some = BrokerView({"q-db": Taken(0, {"i-A": {98: 2}})}, {})
    assert count_unread(some, session, ()) == 2
    assert count_unread(BrokerView({"q-db": Taken(0, {})}, {}), session, ()) == 200


def test_the_numbers_owed_to_a_job_stay_apart_since_a_drain_waits_for_each() -> None:
    job = replace(SESSION, job_name="B", owed=tuple(("i-A", epoch, 1) for epoch in range(50)))
    assert fold_owed(job, ()) == job
