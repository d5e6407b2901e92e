"""Nobody begins at a cut while a broker has lost a session that is read from there on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from binders.memory import MemoryBroker
from speck.deploy.operations.catching_up import switch
from speck.deploy.operations.outcome import Done
from speck.errors import PermanentError, UnreachableError
from speck.model.incarnation import EndState, Incarnation, Session, StartState
from speck.model.job_operations import Start, Stop, Switch
from speck.model.observation import TakenEpoch
from tests.service_helpers import broker, engine
from tests.unit.deploy.bench import DONE, FAILED, Bench, job, start, states
from tests.unit.deploy.operations.readers import (
    HAND_OVER,
    NEW,
    OLD,
    Reader,
    keep_logs,
    put,
    reader_of,
    session,
    stored,
)

JOINING = Switch("edge-a", (), joining=(HAND_OVER,))
FOLLOWING = Switch("edge-a", (), (HAND_OVER,))
TAKEN = (TakenEpoch("i-P", 1, 2),)
LOST = "has lost the session of {} on A-in since it was reserved; apply again"


def announce(*client_ids: str) -> None:
    for client_id in client_ids:
        broker("edge-a").subscribe(client_id, "A-in")
        broker("edge-a").announced.add((client_id, "A-in"))


def new_reader(**more: object) -> Session:
    return session(NEW, "New", fed_outside=True, **more)


def restart(bench: Bench) -> None:
    broker("edge-a").announced.discard((NEW, "A-in"))


def make_again(bench: Bench) -> None:
    put(bench, replace(stored(bench)[NEW], remade=True))


@pytest.mark.parametrize("lose", [restart, make_again])
@pytest.mark.parametrize(("operation", "follows"), [(JOINING, None), (FOLLOWING, OLD)])
def test_readers_do_not_change_where_a_session_lacks_what_came_since_they_stopped(
    bench: Bench,
    reader: Reader,
    operation: Switch,
    follows: str | None,
    lose: Callable[[Bench], None],
) -> None:
    announce(OLD, NEW)
    before = session(OLD, "Old"), new_reader(follows=follows, whole=True)
    put(bench, *before)
    lose(bench)
    with pytest.raises(PermanentError, match=LOST.format("New")):
        switch(reader.context(), operation)
    lost = new_reader(follows=follows, reserved=False)
    assert stored(bench) == {OLD: before[0], NEW: lost}


@pytest.mark.parametrize("operation", [JOINING, FOLLOWING])
def test_readers_change_where_all_sessions_are_there(
    bench: Bench, reader: Reader, operation: Switch
) -> None:
    announce(OLD, NEW)
    put(bench, session(OLD, "Old"), new_reader())
    assert switch(reader.context(), operation) == Done()


def test_a_session_that_only_our_sinks_feed_may_be_made_again(bench: Bench, reader: Reader) -> None:
    """They send again what it lacks."""
    put(bench, session(OLD, "Old"), session(NEW, "New", remade=True))
    assert switch(reader.context(), JOINING) == Done()


def test_a_log_still_holds_what_came_meanwhile(
    bench: Bench, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_logs(monkeypatch, {("in/0", 1): 9})
    put(bench, session(OLD, "Old"), new_reader(remade=True))
    assert switch(reader.context(), JOINING) == Done()


def begin_together(bench: Bench) -> Start:
    """A goes on at its link behind a cut, beside New, which begins there, and Third, which follows
    Old; gives A's start."""
    own, third = reader_of(bench, job("A")), "speck-i-Third-1"
    new_id = reader_of(bench, replace(job("A"), job_name="New"))
    to_b = replace(job("A"), sink=job("B").sink)
    ran = Incarnation(job("A"), 1, "1" * 32, StartState.CONFIRMED, EndState.ENDED)
    new, following = (replace(to_b, job_name=name) for name in ("New", "Third"))
    waiting = [
        Incarnation(to_b, 2, "2" * 32, StartState.VOID, base=ran, switched=True),
        Incarnation(new, 1, "3" * 32, StartState.VOID, switched=True),
    ]
    bench.records.write(*(bench.records.incarnations.put("c", each) for each in waiting))
    put(
        bench,
        session(own, "A", job=to_b, fed_outside=True),
        session(new_id, "New", fed_outside=True, job=new, skip=TAKEN),
        session(OLD, "Old", begun=True, followed_by=third),
        session(third, "Third", job=following, fed_outside=True, former=OLD, skip=TAKEN),
    )
    announce(own, new_id, OLD, third)
    commits = (new_id, new, True), (third, following, True)
    return replace(start("A", attempt=2, keeps_state=False), job=to_b, commits=commits)


def test_nobody_begins_first_while_a_session_is_lost(bench: Bench) -> None:
    """What came meanwhile is taken by those that have it, as they ran."""
    operation = begin_together(bench)
    own, third = reader_of(bench, job("A")), "speck-i-Third-1"
    before, new = stored(bench), operation.commits[0][0]
    broker("edge-a").announced.discard((new, "A-in"))
    change = bench.run((operation, ()))
    assert states(change) == [FAILED]
    assert LOST.format("New") in str(change.error)
    assert engine("edge-a").count("submit") == 0
    ran = bench.records.incarnations.get("c", "A")
    assert ran is not None and (ran.attempt, ran.ended, ran.job) == (1, True, job("A"))
    assert bench.records.incarnations.get("c", "New") is None
    assert stored(bench) == {
        own: replace(before[own], job=job("A"), begun=True),
        new: replace(before[new], reserved=False, skip=()),
        OLD: replace(before[OLD], followed_by=None),
        third: replace(before[third], former=None, follows=OLD, whole=True, skip=()),
    }


def test_the_first_one_begins_where_all_sessions_are_there(bench: Bench) -> None:
    operation = begin_together(bench)
    assert states(bench.run((operation, ()))) == [DONE]
    assert stored(bench)[operation.commits[0][0]].committed


def test_once_one_has_begun_the_others_begin_with_what_there_is(bench: Bench) -> None:
    operation = begin_together(bench)
    new = operation.commits[0][0]
    put(bench, replace(stored(bench)[new], committed=True))
    broker("edge-a").announced.discard((new, "A-in"))
    assert states(bench.run((operation, ()))) == [DONE]


def test_a_session_may_be_lost_just_before_its_own_reader_begins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, old = reader_of(bench, job("A")), "speck-i-Old-1"
    put(bench, session(old, "Old"), session(own, "A", fed_outside=True, skip=TAKEN))
    announce(own, old)
    reserve = MemoryBroker.reserve

    def lose(memory: MemoryBroker, reader: str, topic: str, **how: object) -> object:
        broker("edge-a").sessions.pop(reader, None)
        return reserve(memory, reader, topic, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryBroker, "reserve", lose)
    operation = replace(start("A"), commits=((old, job("A"), True),))
    change = bench.run((operation, ()))
    assert states(change) == [FAILED]
    assert LOST.format("A") in str(change.error)
    assert not stored(bench)[own].reserved


def reading(bench: Bench) -> Stop:
    """A reads its link, and New waits to begin where it ends; gives A's stop."""
    assert states(bench.run((start("A"), ()))) == [DONE]
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A", begun=True, fed_outside=True), new_reader(follows=own))
    announce(NEW)
    return Stop("edge-a", "A", 1, start("A").engine_job_id)


@pytest.mark.parametrize("lose", [restart, make_again])
def test_a_reader_does_not_stop_where_a_session_lacks_what_came_since_it_was_drained(
    bench: Bench, lose: Callable[[Bench], None]
) -> None:
    """It runs on, and is drained once more: then the session has all that it has not taken."""
    stop = reading(bench)
    before = stored(bench)
    lose(bench)
    change = bench.run((stop, ()))
    assert states(change) == [FAILED]
    assert "the session of New on A-in, which begins where A ends; apply again" in str(change.error)
    assert engine("edge-a").count("stop") == 0
    assert (NEW, "A-in") in broker("edge-a").announced
    assert stored(bench) == before
    assert states(bench.run((stop, ()))) == [DONE]


def test_a_reader_stops_where_the_sessions_are_there(bench: Bench) -> None:
    assert states(bench.run((reading(bench), ()))) == [DONE]


def test_a_reader_stops_though_its_broker_does_not_answer(bench: Bench) -> None:
    """The start of the other one looks for its session."""
    stop = reading(bench)
    restart(bench)
    broker("edge-a").refuse("view", 1, UnreachableError("cannot reach edge-a"))
    assert states(bench.run((stop, ()))) == [DONE]
