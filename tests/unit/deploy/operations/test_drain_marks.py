"""Marks that a drain sends through its reader's session."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from speck.deploy.operations.reader_checkpoints import ReaderCheckpoints
from speck.errors import UnreachableError
from tests.service_helpers import broker
from tests.unit.deploy.operations.readers import PATIENT, SINK, Reader, ends, sent


@pytest.mark.parametrize(
    "how",
    [{"followed": True}, {"followed": True, "fed_outside": True}, {"lossy": True}, {}],
    ids=["followed", "fed outside", "lossy", "alone"],
)
def test_a_drain_ends_once_its_reader_reports_its_mark(reader: Reader, how: dict[str, Any]) -> None:
    """What is missing then was lost, or was never for this session."""
    reader.takes_marks()
    sent(7)
    reader.has_taken(6)
    drain = reader.drain(going_on=(SINK,), **how)
    assert not ends(drain)
    assert not ends(drain)
    (mark,) = reader.marks
    reader.has_taken(6, mark)
    assert ends(drain)


def test_a_drain_does_not_end_by_a_mark_of_another(reader: Reader) -> None:
    """Nor after a restart of the service, by one of its own from before."""
    reader.takes_marks()
    sent(7)
    reader.has_taken(6, "0af9")
    before = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(before)
    (old,) = reader.marks
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    reader.has_taken(6, old)
    assert not ends(drain)
    assert len(reader.marks) == 2
    reader.has_taken(6, reader.marks[-1])
    assert ends(drain)


def test_a_mark_that_does_not_come_back_is_followed_by_another(reader: Reader) -> None:
    """A broker that was killed may have lost it. Whichever comes back counts."""
    reader.takes_marks()
    sent(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    for marks in (1, 2, 3):
        for _ in range(3):
            assert not ends(drain)
            assert len(set(reader.marks)) == marks
        reader.bench.clock.ahead_s += PATIENT.drain_mark_s
    reader.has_taken(6, reader.marks[1])
    assert ends(drain)
    assert len(reader.marks) == 3


def test_a_drain_that_its_numbers_end_at_once_sends_no_mark(reader: Reader) -> None:
    reader.takes_marks()
    sent(7)
    reader.has_taken(7)
    assert ends(reader.drain(going_on=(SINK,)))
    assert reader.marks == []


def test_a_mark_that_does_not_get_to_its_broker_is_sent_at_the_next_look(reader: Reader) -> None:
    reader.takes_marks()
    sent(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    broker("edge-a").refuse("mark", 1, UnreachableError("away"))
    with pytest.raises(UnreachableError):
        drain.poll()
    assert not ends(drain)
    assert len(reader.marks) == 1


def test_a_reader_that_connects_during_its_drain_is_sent_a_mark_then(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.patience = replace(PATIENT, drain_quiet_s=40.0)
    checkpoints = count(1)
    monkeypatch.setattr(ReaderCheckpoints, "count", lambda *_: next(checkpoints))
    sent(7)
    drain = reader.drain(sinks=(SINK,), followed=True)
    assert not ends(drain)
    reader.takes_marks()
    reader.bench.clock.ahead_s += PATIENT.drain_mark_s
    assert not ends(drain)
    (mark,) = reader.marks
    reader.bench.clock.ahead_s += 40.0
    assert not ends(drain)
    reader.has_taken(5, mark)
    assert ends(drain)
