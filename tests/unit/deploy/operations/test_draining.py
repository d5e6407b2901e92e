"""What a reader takes before its drain ends."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from speck.binding import EngineCapability, SavedState, SaveProgress
from speck.deploy.operations.outcome import Done
from speck.deploy.operations.reader_checkpoints import ReaderCheckpoints
from speck.model.observation import RunState, Sent, Taken, TakenEpoch
from tests.service_helpers import broker
from tests.unit.deploy.bench import Bench
from tests.unit.deploy.operations.readers import (
    EPOCH,
    OLD,
    PATIENT,
    SINK,
    Reader,
    ends,
    keep_logs,
    put,
    sent,
    session,
    stored,
)


class StillEngine:
    """An engine whose state does not change while nothing is taken."""

    capabilities = frozenset({EngineCapability.STATE})
    completes = False

    def status(self, engine_job_id: str) -> RunState:
        return RunState.RUNNING

    def newest_state(self, engine_job_id: str) -> SavedState:
        return SavedState(4, "state", 0, 0, False)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        """It is taken at once."""

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return SaveProgress(self.completes)


def test_a_reader_that_nobody_follows_takes_what_was_told_when_it_began(reader: Reader) -> None:
    sent(7)
    reader.has_taken(6)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    sent(9, at_ms=1)
    reader.has_taken(7)
    assert ends(drain)


@pytest.mark.parametrize("limited", [True, False])
def test_a_reader_of_a_log_takes_what_came_up_to_its_limit_or_the_end(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """One that catches up reads no further, however much is written meanwhile."""
    keep_logs(monkeypatch, {("i-P", EPOCH): 90})
    reader.has_taken(6)
    drain = reader.drain()
    if limited:
        drain.owed, drain.until = {("i-P", EPOCH): 7}, (TakenEpoch("i-P", EPOCH, 7),)
    assert not ends(drain)
    reader.has_taken(7)
    assert ends(drain) is limited
    reader.has_taken(90)
    assert ends(drain)


def test_what_a_log_owed_before_it_was_made_anew_is_not_waited_for(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_logs(monkeypatch, {("old part", 0): 50})
    broker("edge-a").taken[OLD] = Taken(1, {"old part": {0: 3}}, messages=3)
    drain = reader.drain()
    assert not ends(drain)
    keep_logs(monkeypatch, {("new part", 0): 2})
    broker("edge-a").taken[OLD] = Taken(1, {"new part": {0: 2}}, messages=5)
    assert ends(drain)


def test_a_reader_that_is_followed_takes_what_is_told_once_more(reader: Reader) -> None:
    """What a producer told when the drain began is a little older than that."""
    sent(7)
    reader.has_taken(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    assert not ends(drain)
    sent(9, at_ms=1)
    assert not ends(drain)
    sent(12, at_ms=2)
    reader.has_taken(8)
    assert not ends(drain)
    reader.has_taken(9)
    assert ends(drain)


@pytest.mark.parametrize(("handed_over", "kept"), [(True, [("i-P", 7)]), (False, [])])
def test_the_end_of_a_drain_stores_what_a_followed_reader_has_taken(
    bench: Bench, reader: Reader, handed_over: bool, kept: list[tuple[str, int]]
) -> None:
    """A broker that is killed before the handover may have forgotten it."""
    sent(7)
    reader.has_taken(7)
    drain = reader.drain(sinks=(SINK,), handed_over=handed_over)
    outcome = drain.poll()
    assert isinstance(outcome, Done)
    bench.records.write(outcome.store)
    broker("edge-a").taken.clear()
    assert [(each.producer, each.upto) for each in stored(bench)[OLD].skip] == kept


def test_a_follower_that_was_there_before_a_drain_has_all_that_its_reader_has_not_taken(
    bench: Bench, reader: Reader
) -> None:
    """One that comes later has not, and one whose release has begun meanwhile stays released."""
    there, late, leaving = (f"speck-i-{name}-1" for name in ("There", "Late", "Leaving"))
    put(bench, session(there, "There", follows=OLD), session(leaving, "Leaving", follows=OLD))
    sent(7)
    reader.has_taken(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    put(
        bench,
        session(late, "Late", follows=OLD),
        session(leaving, "Leaving", follows=OLD, reserved=False),
    )
    sent(7, at_ms=1)
    outcome = drain.poll()
    assert isinstance(outcome, Done)
    bench.records.write(bench.records.sessions.drop("c", leaving, "edge-a"), outcome.store)
    followers = {name: each.whole for name, each in stored(bench).items() if each.follows == OLD}
    assert followers == {there: True, late: False}


def test_a_producer_that_sends_nothing_more_need_only_say_so(reader: Reader) -> None:
    sent(7)
    reader.has_taken(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    sent(7, at_ms=1)
    assert ends(drain)


def test_every_producer_that_goes_on_has_to_tell_once_more(reader: Reader) -> None:
    drain = reader.drain(going_on=(SINK, "other-out"), followed=True)
    reader.has_taken(7)
    assert not ends(drain)
    sent(7, at_ms=1)
    assert not ends(drain)
    broker("edge-a").sent["other-out"] = Sent("i-Q", EPOCH, 1, 1)
    assert not ends(drain)
    broker("edge-a").taken[OLD] = Taken(2, {"i-P": {EPOCH: 7}, "i-Q": {EPOCH: 1}})
    assert ends(drain)


def test_numbers_alone_end_no_followed_drain_where_others_publish_unseen(reader: Reader) -> None:
    reader.takes_marks()
    drain = reader.drain(going_on=(SINK,), followed=True, fed_outside=True)
    for at_ms in (1, 2, 3):
        sent(7, at_ms=at_ms)
        reader.has_taken(7)
        assert not ends(drain)


def test_silence_counts_only_where_a_session_takes_no_marks(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow line a reader of ours may be silent while thousands of messages wait for it."""
    sent(7)
    reader.has_taken(5)
    checkpoints = count(1)
    monkeypatch.setattr(ReaderCheckpoints, "count", lambda *_: next(checkpoints))
    reader.takes_marks()
    drain = reader.drain(sinks=(SINK,))
    assert not any(ends(drain) for _ in range(20))
    del broker("edge-a").sessions[OLD]
    drain = reader.drain(sinks=(SINK,))
    assert any(ends(drain) for _ in range(20))


def test_silence_counts_once_it_has_lasted_for_a_while(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints come fast when they are asked for; what is on its way takes its time."""
    reader.patience = replace(PATIENT, drain_quiet_s=10.0)
    sent(7)
    reader.has_taken(5)
    checkpoints = count(1)
    monkeypatch.setattr(ReaderCheckpoints, "count", lambda *_: next(checkpoints))
    drain = reader.drain(sinks=(SINK,))
    for _ in range(6):
        assert not ends(drain)
    reader.bench.clock.ahead_s += 10.0
    assert ends(drain)


def test_checkpoints_count_whose_engine_keeps_the_state_as_it_is(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was taken, so that nothing is saved under a new number; what was asked for is done
    all the same."""
    engine = StillEngine()
    monkeypatch.setattr(ReaderCheckpoints, "engine", engine)
    sent(7)
    reader.has_taken(5)
    drain = reader.drain(sinks=(SINK,))
    for _ in range(3):
        assert not ends(drain)
        reader.bench.clock.ahead_s += 1.0
    engine.completes = True
    ended = []
    for _ in range(12):
        ended.append(ends(drain))
        reader.bench.clock.ahead_s += 1.0
    assert any(ended)
    assert ended.index(True) >= 3, "each is asked for, and then seen"


def test_silence_need_not_last_once_the_last_number_was_taken(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that was on another link for a while leaves a hole that nothing ever fills."""
    reader.patience = replace(PATIENT, drain_quiet_s=1000.0)
    sent(7)
    checkpoints = count(1)
    monkeypatch.setattr(ReaderCheckpoints, "count", lambda *_: next(checkpoints))
    drain = reader.drain(sinks=(SINK,))
    for above in ((5, 6), (5, 7)):
        taken = Taken(1, {"i-P": {EPOCH: 2}}, above={"i-P": {EPOCH: (above,)}})
        broker("edge-a").taken[OLD] = taken
        ended = [ends(drain) for _ in range(6)]
        assert any(ended) == (above == (5, 7))


def test_what_a_sink_told_of_another_topic_is_not_waited_for(reader: Reader) -> None:
    sent(7, topic="elsewhere")
    assert ends(reader.drain(sinks=(SINK,), going_on=(SINK,)))
    sent(7)
    assert not ends(reader.drain(sinks=(SINK,), going_on=(SINK,)))


def test_what_a_followed_drain_waits_for_is_noted_until_it_ends(reader: Reader) -> None:
    """If it fails, its producer may have left the link before the next one, and tell no more."""
    sent(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    assert stored(reader.bench)[OLD].owed == (("i-P", EPOCH, 7),)
    sent(7, at_ms=1)
    reader.has_taken(7)
    outcome = drain.poll()
    assert isinstance(outcome, Done)
    reader.bench.records.write(outcome.store)
    assert stored(reader.bench)[OLD].owed == ()
