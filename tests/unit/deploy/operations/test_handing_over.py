"""A link is handed over from one reader to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.errors import PermanentError
from speck.model.incarnation import EndState, Incarnation
from speck.model.link_operations import HandOver, Reserve
from speck.model.observation import Sent, Taken, TakenEpoch
from speck.model.plan_outline import OperationState
from speck.store.sessions import SeenPosition
from speck.store.tables import Batch
from tests.service_helpers import broker
from tests.unit.deploy.bench import DONE, FAILED, Bench, job, states
from tests.unit.deploy.operations.readers import (
    EPOCH,
    HAND_OVER,
    NEW,
    OLD,
    keep_logs,
    put,
    session,
    stored,
)


def test_a_handover_stores_what_was_taken_by_all_readers_before(bench: Bench) -> None:
    """By those before the old reader, by that one, and by others of the same link."""
    put(
        bench,
        session(OLD, "Old", skip=(TakenEpoch("i-P", EPOCH, 4), TakenEpoch("i-Q", EPOCH, 2))),
        session(NEW, "New", follows=OLD, skip=(TakenEpoch("i-P", EPOCH, 1, ((9, 9),)),)),
    )
    broker("edge-a").taken[OLD] = Taken(
        3, {"i-P": {EPOCH: 6, EPOCH + 1: 5}}, above={"i-P": {EPOCH: ((8, 8),)}}
    )
    assert states(bench.run((HAND_OVER, ()))) == [DONE]
    taken = (
        TakenEpoch("i-P", EPOCH, 6, ((8, 9),)),
        TakenEpoch("i-Q", EPOCH, 2),
        TakenEpoch("i-P", EPOCH + 1, 5),
    )
    incarnations = stored(bench)
    assert incarnations[NEW] == session(NEW, "New", skip=taken, former=OLD)
    # for another handover: a broker that is killed now may lose the new session and these numbers
    assert incarnations[OLD] == session(OLD, "Old", skip=taken, followed_by=NEW)


def test_a_handover_drops_numbers_of_producers_that_are_long_gone(bench: Bench) -> None:
    """Neither the old reader nor the broker knows them any more."""
    gone = tuple(TakenEpoch(f"gone-{n}", EPOCH, n + 1) for n in range(40))
    broker("edge-a").sent["back-out"] = Sent("gone-0", EPOCH, 9, 1)
    put(bench, session(OLD, "Old", skip=gone), session(NEW, "New", follows=OLD))
    broker("edge-a").taken[OLD] = Taken(3, {"i-P": {EPOCH: 7}})
    assert states(bench.run((HAND_OVER, ()))) == [DONE]
    producers = [each.producer for each in stored(bench)[NEW].skip]
    assert producers == ["gone-0", *(f"gone-{n}" for n in range(24, 40)), "i-P"]


def test_a_handover_keeps_the_places_in_all_parts_of_a_log(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the old reader's place is gone: it had taken what lies before."""
    parts = [f"part {number}" for number in range(50)]
    keep_logs(monkeypatch, {(part, 0): 150 for part in parts})
    old = session(OLD, "Old", since=tuple((part, 0, 3) for part in parts))
    put(bench, old, session(NEW, "New", follows=OLD))
    numbers = tuple((part, 0, 100 + n) for n, part in enumerate(parts))
    bench.records.write(
        bench.records.sessions.put_seen(SeenPosition("edge-a", OLD, old.since, numbers))
    )
    assert states(bench.run((HAND_OVER, ()))) == [DONE]
    assert stored(bench)[NEW].skip == tuple(TakenEpoch(*each) for each in numbers)


def test_where_a_former_session_of_the_same_name_was_seen_says_nothing(bench: Bench) -> None:
    old = session(OLD, "Old", since=(("part", 0, 3),))
    bench.records.write(
        bench.records.sessions.put_seen(
            SeenPosition("edge-a", OLD, (("part", 0, 1),), (("part", 0, 2),))
        )
    )
    assert bench.records.sessions.find_position(old) == {("part", 0): 3}


@pytest.mark.parametrize(
    ("asked_s", "is_stored", "expected"),
    [(10, False, FAILED), (10, True, DONE), (0, False, DONE)],
    ids=["stopped before", "but another has its numbers", "stopped after"],
)
def test_a_link_is_handed_over_only_if_its_broker_has_what_was_taken_last(
    bench: Bench, asked_s: float, is_stored: bool, expected: OperationState
) -> None:
    """A broker that is killed forgets what the reader said last: that one says it again first."""
    old = session(OLD, "Old", followed_by="speck-i-Other-1" if is_stored else None)
    put(bench, old, session(NEW, "New", follows=OLD))
    asked_ms = int((bench.clock.now().timestamp() - asked_s) * 1000)
    reader = replace(job("A"), job_name="Old")
    stopped = Incarnation(reader, 1, "1" * 32, end=EndState.ENDED, asked_ms=asked_ms)
    bench.records.write(bench.records.incarnations.put("c", stopped))
    broker("edge-a").up_since = bench.clock.monotonic() - 5
    result = bench.run((HAND_OVER, ()))
    assert states(result) == [expected]
    after = bench.records.incarnations.get("c", "Old")
    assert after is not None and after.is_forgotten == (expected is FAILED)
    if expected is FAILED:
        assert "Old stopped, and may have forgotten" in (result.operations[0].error or "")


def test_a_handover_leaves_the_old_session_as_the_way_back(bench: Bench) -> None:
    old = session(OLD, "Old", skip=(TakenEpoch("i-P", EPOCH, 4),), owed=(("i-P", EPOCH, 7),))
    put(bench, old, session(NEW, "New", follows=OLD))
    bench.run((HAND_OVER, ()))
    assert stored(bench)[OLD] == replace(old, followed_by=NEW)


def test_a_handover_is_one_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that dies finds both sessions changed, or none."""
    put(bench, session(OLD, "Old"), session(NEW, "New", follows=OLD))
    writes: list[set[str]] = []
    write = bench.records.write

    def noted(*batches: Batch) -> None:
        writes.append({key for batch in batches for key in batch if key.startswith("ses/")})
        write(*batches)

    monkeypatch.setattr(bench.records, "write", noted)
    bench.run((HAND_OVER, ()))
    assert [keys for keys in writes if keys] == [{f"ses/c/{OLD}/edge-a", f"ses/c/{NEW}/edge-a"}]


def test_a_reader_that_was_followed_and_comes_back_follows_in_its_turn(bench: Bench) -> None:
    """Its follower never started: what that one was to drop, it drops itself."""
    taken = (TakenEpoch("i-P", EPOCH, 4),)
    put(bench, session(OLD, "Old", followed_by=NEW), session(NEW, "New", skip=taken))
    back = HandOver("edge-a", job("A").source, OLD, "Old", NEW, "New")
    assert states(bench.run((back, ()))) == [DONE]
    assert stored(bench) == {
        OLD: session(OLD, "Old", skip=taken, former=NEW),
        NEW: session(NEW, "New", skip=taken, followed_by=OLD),
    }


@pytest.mark.parametrize(("there", "gone"), [((OLD, "Old"), "New"), ((NEW, "New"), "Old")])
def test_nothing_is_handed_over_from_or_to_a_session_that_is_gone(
    bench: Bench, there: tuple[str, str], gone: str
) -> None:
    put(bench, session(*there))
    change = bench.run((HAND_OVER, ()))
    assert states(change) == [FAILED]
    assert change.error == (
        f"cannot hand over edge-a/A-in from Old to New: the session of {gone} is gone; apply again"
    )
    assert stored(bench) == {there[0]: session(*there)}


def test_a_reservation_notes_whose_session_it_follows(bench: Bench) -> None:
    broker("edge-a").refuse("reserve", 1, PermanentError("cannot reserve: no"))
    reserve = Reserve("edge-a", job("A").source, NEW, "New", follows=OLD)
    bench.run((reserve, ()))
    assert stored(bench) == {NEW: session(NEW, "New", follows=OLD, reserved=False)}
    bench.run((reserve, ()))
    assert stored(bench) == {NEW: session(NEW, "New", follows=OLD)}
