"""How a link changes hands is carried out, on in-memory engines and brokers and a real store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from binders.memory import MemoryBroker, World
from speck.binding import Artifact, EngineCapability, SavedState, SaveProgress
from speck.clock import SystemClock
from speck.deploy.locks import NamedLocks, SessionLocks
from speck.deploy.operations import Patience, Refills, links, returning, starting
from speck.deploy.operations.beginnings import commit, record_forms
from speck.deploy.operations.catching_up import switch
from speck.deploy.operations.context import Context
from speck.deploy.operations.draining import Draining
from speck.deploy.operations.ending import conclude
from speck.deploy.operations.gathering import Gathering
from speck.deploy.operations.links import give_up_release, reserve
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.reader_checkpoints import ReaderCheckpoints
from speck.deploy.operations.returning import come_back
from speck.deploy.operations.shared_views import SharedViews
from speck.errors import PermanentError, UnreachableError
from speck.model.change import ChangeReport, ChangeState
from speck.model.engines import ArtifactKind
from speck.model.ids import sink_client_id, source_client_id
from speck.model.incarnation import EndState, Incarnation, Session, StaleSink, StartState
from speck.model.job import Job
from speck.model.job_operations import Return, Stop, Switch
from speck.model.link import Link
from speck.model.link_operations import Clear, Drain, HandOver, Release, Reserve
from speck.model.observation import BrokerView, Position, RunState, Sent, Taken, TakenEpoch
from speck.model.plan_outline import OperationState
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.agents import Agents
from speck.service.compositions import ApplyRequest
from speck.spec.job_contract import render_taken
from speck.store.sessions import SeenPosition
from speck.store.tables import Batch
from tests.memory_fog import HASTY, find_session
from tests.service_helpers import DONE as WAIT
from tests.service_helpers import composition, job_body
from tests.unit.deploy.execution.test_executor import (
    DONE,
    FAILED,
    LIMIT_S,
    Bench,
    RecordingRecords,
    broker,
    engine,
    job,
    join,
    start,
    states,
)
from tests.waiting import wait_for

EPOCH = (1 << 32) + 1
OLD, NEW = "speck-i-Old-1", "speck-i-New-1"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    World.reset(slots=64)
    records = RecordingRecords.open(tmp_path / "store", SystemClock())
    assert isinstance(records, RecordingRecords)
    records.log = []
    yield Bench(tmp_path, records)
    records.store.close()


def session(client_id: str, name: str, **more: object) -> Session:
    """On the link that A reads."""
    return replace(Session(client_id, job("A").source, "edge-a", name), **more)  # type: ignore[arg-type]


def put(bench: Bench, *sessions: Session) -> None:
    bench.records.write(*(bench.records.sessions.put("c", each) for each in sessions))


def stored(bench: Bench) -> dict[str, Session]:
    return {each.client_id: each for each in bench.records.sessions.of_scope("c")}


# -- the handover -------------------------------------------------------------------------

HAND_OVER = HandOver("edge-a", job("A").source, NEW, "New", OLD, "Old")


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


def keep_logs(monkeypatch: pytest.MonkeyPatch, ends: Position) -> None:
    """Let the broker keep a log of A's link, which ends there."""
    view = MemoryBroker.view
    monkeypatch.setattr(
        MemoryBroker,
        "view",
        lambda broker, clients=None: replace(view(broker, clients), ends={"A-in": ends}),
    )


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


# -- the start that drops it --------------------------------------------------------------


def reader_of(bench: Bench, of: Job) -> str:
    return source_client_id(bench.records.installation, of.job_name, of.source)


def handed_over(bench: Bench, **more: object) -> str:
    """A's session, in which it goes on where Old ended; gives its client id."""
    own = reader_of(bench, job("A"))
    taken = (TakenEpoch("i-P", 1, 2, ((4, 4),)),)
    new = session(own, "A", skip=taken, **{"former": OLD, **more})
    put(bench, session(OLD, "Old", followed_by=own), new)
    broker("edge-a").subscribe(own, "A-in")
    return own


def came_out() -> list[bytes]:
    World.current().pump()
    return [message.payload for message in broker("edge-a").published["A-out"]]


def test_a_start_says_what_others_have_taken_and_the_job_drops_it(bench: Bench) -> None:
    handed_over(bench)
    numbers = [str(number).encode() for number in range(1, 7)]
    World.current().feed("tcp://edge-a.test:1883", "A-in", numbers, "i-P")
    assert states(bench.run((start("A"), ()))) == [DONE]
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    taken = (TakenEpoch("i-P", 1, 2, ((4, 4),)),)
    assert args[args.index("--taken") + 1] == render_taken(taken)
    assert came_out() == [b"3", b"5", b"6"]


def test_a_start_of_a_reader_that_follows_nobody_says_nothing_of_it(bench: Bench) -> None:
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A"))
    assert states(bench.run((start("A"), ()))) == [DONE]
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    assert "--taken" not in args
    assert broker("edge-a").count("reserve") == 0


def test_what_was_taken_of_another_link_is_not_dropped(bench: Bench) -> None:
    """A client id stands for a link; a record that says otherwise is not believed."""
    own = reader_of(bench, job("A"))
    put(bench, session(own, "A", link=job("B").source, skip=(TakenEpoch("i-P", 1, 2),)))
    bench.run((start("A"), ()))
    assert "--taken" not in engine("edge-a").jobs[start("A").engine_job_id].submission.args


def test_a_later_start_drops_the_same(bench: Bench) -> None:
    handed_over(bench)
    bench.run((start("A"), ()))
    engine("edge-a").fail(start("A").engine_job_id, "no memory")
    again = start("A", attempt=2)
    assert states(bench.run((again, ()))) == [DONE]
    assert "--taken" in engine("edge-a").jobs[again.engine_job_id].submission.args


def test_a_start_says_only_what_was_stored_at_the_handover(bench: Bench) -> None:
    """A start asks nobody what others have taken: a change that goes on says the same again."""
    own = handed_over(bench)
    broker("edge-a").taken[OLD] = Taken(9, {"i-P": {1: 99}})
    bench.run((start("A"), ()))
    args = engine("edge-a").jobs[start("A").engine_job_id].submission.args
    assert args[args.index("--taken") + 1] == render_taken(stored(bench)[own].skip)


# -- the session in which it goes on ------------------------------------------------------


def test_a_session_that_is_there_is_gone_on_with(bench: Bench) -> None:
    own = handed_over(bench)
    before = stored(bench)
    assert states(bench.run((start("A"), ()))) == [DONE]
    assert broker("edge-a").calls[:2] == [("identify", ""), ("reserve", own)]
    begun = replace(before[own], job=start("A").job, begun=True)
    assert stored(bench) == {**before, own: begun}
    assert broker("edge-a").thrown_out == []


def test_a_reader_does_not_start_in_a_session_that_the_broker_has_lost(bench: Bench) -> None:
    own = handed_over(bench)
    del broker("edge-a").sessions[own]
    change = bench.run((start("A"), ()))
    assert states(change) == [FAILED]
    assert change.error == (
        "cannot start A: the broker of edge-a has lost its session on A-in since it was reserved;"
        " apply again: Old then takes what came meanwhile"
    )
    assert engine("edge-a").count("submit") == 0
    assert bench.records.incarnations.get("c", "A") is None
    skip = (TakenEpoch("i-P", 1, 2, ((4, 4),)),)
    assert stored(bench) == {
        OLD: session(OLD, "Old"),
        own: session(own, "A", reserved=False, follows=OLD, skip=skip),
    }


def test_one_of_several_readers_whose_session_is_lost_has_the_sinks_send_again(
    bench: Bench,
) -> None:
    """It follows nobody: no other session holds what came for it."""
    own = reader_of(bench, job("A"))
    put(bench, session(OLD, "Old"), session(own, "A"))
    assert states(bench.run((start("A"), ()))) == [DONE]
    assert broker("edge-a").calls[:3] == [("identify", ""), ("reserve", own)]
    begun = session(own, "A", job=start("A").job, begun=True)
    assert stored(bench) == {OLD: session(OLD, "Old"), own: begun}


def before_it(of: Job, **more: object) -> Incarnation:
    return replace(Incarnation(of, 1, "1" * 32), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "more",
    [
        {"start": StartState.CONFIRMED},
        {"start": StartState.ACCEPTED},
        {"end": EndState.ENDED},
        {},
    ],
)
def test_a_session_that_an_incarnation_may_hold_is_not_reserved_again(
    bench: Bench, more: dict[str, StartState | EndState]
) -> None:
    """That would throw it out."""
    handed_over(bench)
    bench.records.write(bench.records.incarnations.put("c", before_it(job("A"), **more)))
    bench.run((start("A", attempt=2), ()))
    assert broker("edge-a").count("reserve") == 0


def test_an_incarnation_before_one_that_never_ran_may_hold_the_session_too(bench: Bench) -> None:
    handed_over(bench)
    base = before_it(job("A"), start=StartState.CONFIRMED)
    void = Incarnation(job("A"), 2, "2" * 32, start=StartState.VOID, base=base)
    bench.records.write(bench.records.incarnations.put("c", void))
    bench.run((start("A", attempt=3), ()))
    assert broker("edge-a").count("reserve") == 0


@pytest.mark.parametrize("before", ["of another link", "that never ran"])
def test_an_incarnation_that_does_not_hold_the_session_does_not_vouch_for_it(
    bench: Bench, before: str
) -> None:
    own = handed_over(bench)
    del broker("edge-a").sessions[own]
    elsewhere = replace(job("A"), source=job("B").source)
    old = before_it(elsewhere, end=EndState.ENDED) if before == "of another link" else None
    bench.records.write(
        bench.records.incarnations.put(
            "c", old or before_it(job("A"), start=StartState.VOID, end=EndState.ENDED)
        )
    )
    change = bench.run((start("A", attempt=2), ()))
    assert states(change) == [FAILED]
    assert "has lost its session" in str(change.error)


def test_a_start_whose_answer_was_lost_does_not_throw_out_its_own_incarnation(
    bench: Bench,
) -> None:
    handed_over(bench)
    lost = UnreachableError("cannot reach edge-a: the answer was lost")
    engine("edge-a").refuse("submit", 1, lost, after=True)
    change = bench.run((start("A"), ()))
    assert states(change) == [DONE]
    assert change.operations[0].attempts == 2
    assert broker("edge-a").thrown_out == []


def test_each_of_two_that_follow_one_reader_sees_that_its_session_is_there(bench: Bench) -> None:
    """The broker lost that of the first; what it was to read waits in the old session only."""
    first, second = (reader_of(bench, job(name)) for name in "AB")
    put(bench, session(OLD, "Old"))
    put(bench, *(session(each, n, follows=OLD) for each, n in ((first, "A"), (second, "B"))))
    for client_id, name in ((first, "A"), (second, "B")):
        bench.run((HandOver("edge-a", job("A").source, client_id, name, OLD, "Old"), ()))
    broker("edge-a").subscribe(second, "A-in")
    assert states(bench.run((start("A"), ()))) == [FAILED]


def test_a_session_that_is_released_is_read_in_the_place_of_none(bench: Bench) -> None:
    """One that is made later under its client id is not meant."""
    put(bench, session(OLD, "Old"), session(NEW, "New", begun=True, instead_of=OLD))
    release = Release("edge-a", job("A").source, OLD, "Old", last_reader=False)
    assert states(bench.run((release, ()))) == [DONE]
    assert stored(bench) == {NEW: session(NEW, "New", begun=True)}


# -- what a reader takes before it is followed --------------------------------------------

SINK = "speck-i-P-1-out"
PATIENT = replace(HASTY, drain_idle_s=1000.0, drain_ask_s=100.0, drain_mark_s=10.0)


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


@dataclass
class Reader:
    """A drain of A's link by a reader that a test speaks for."""

    bench: Bench
    patience: Patience = PATIENT

    def view(self, site: str, client_ids: Collection[str] | None = None) -> BrokerView:
        return self.bench.connections.broker(site).view(client_ids)

    def forget(self, site: str, sinks: Collection[str]) -> None:
        self.bench.connections.broker(site).forget(*sinks)

    def context(self) -> Context:
        return Context(
            self.bench.connections,
            self.bench.records,
            self.bench.clock,
            "c",
            lambda sha256: Artifact(sha256, self.bench.folder / "a.jar", ArtifactKind.JAR),
            self.patience,
            Agents(self.bench.records, self.bench.records.sites.all, self.bench.clock),
            Refills(self.bench.connections, self.bench.clock, 0.0),
            self.bench.resends(),
            SharedViews(self.view),
            Gathering(self.forget),
        )

    def drain(self, **more: object) -> Draining:
        running = start("A").engine_job_id
        drain = Drain("edge-a", job("A").source, OLD, "Old", (), "edge-a", running)
        return Draining(replace(drain, **more), self.context())  # type: ignore[arg-type]

    def has_taken(self, number: int, mark: str | None = None) -> None:
        broker("edge-a").taken[OLD] = Taken(1, {"i-P": {EPOCH: number}}, messages=number, mark=mark)

    def takes_marks(self) -> None:
        broker("edge-a").connect(OLD, "A-in", "the old one")

    @property
    def marks(self) -> list[str]:
        """Those that wait in its session."""
        queue = broker("edge-a").sessions[OLD].queue
        return [message.mark for message in queue if message.mark]


@pytest.fixture
def reader(bench: Bench) -> Reader:
    put(bench, session(OLD, "Old"))
    return Reader(bench)


def sent(number: int, at_ms: int = 0, topic: str | None = "A-in") -> None:
    broker("edge-a").sent[SINK] = Sent("i-P", EPOCH, number, at_ms, topic=topic)


def ends(drain: Draining) -> bool:
    """Whether it ends at this look."""
    outcome = drain.poll()
    assert isinstance(outcome, Done | Waiting)
    return isinstance(outcome, Done)


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
        drain.owed, drain.is_limited = {("i-P", EPOCH): 7}, True
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


@pytest.mark.parametrize(
    "operate",
    [
        lambda reader: reader.drain(sinks=(SINK,), handed_over=True).poll(),
        lambda reader: reader.drain(sinks=(SINK,)).give_up("it hangs"),
        lambda reader: reserve(
            reader.context(), Reserve("edge-a", job("A").source, OLD, "Old", follows=NEW)
        ),
        lambda reader: switch(reader.context(), Switch("edge-a", (), joining=(HAND_OVER,))),
        lambda reader: switch(reader.context(), Switch("edge-a", (), (HAND_OVER,))),
        lambda reader: give_up_release(
            reader.context(), Release("edge-a", job("A").source, OLD, "Old", False), "it is away"
        ),
    ],
    ids=["drain", "given up", "reserve", "joining", "handover", "release given up"],
)
def test_what_others_write_to_a_session_before_the_outcome_is_stored_stays(
    bench: Bench, reader: Reader, operate: Callable[[Reader], Outcome]
) -> None:
    """Outcomes of many operations are stored together, after their sessions were written."""
    put(bench, session(NEW, "New", follows=OLD))
    sent(7)
    reader.has_taken(7)
    outcome = operate(reader)
    assert isinstance(outcome, Done)
    put(bench, *(replace(each, committed=True) for each in stored(bench).values()))
    bench.records.write(outcome.batch())
    assert [each.client_id for each in stored(bench).values() if not each.committed] == []


OTHER_JOB = replace(job("A"), sink=Link("edge-a", "other"))


class BusyLocks(NamedLocks):
    """Whoever wants a lock waits for others, who write to all sessions. Nobody else writes to one
    without its lock."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self._write = bench.records.write
        self._held = set[str]()

    @contextmanager
    def __getitem__(self, name: str) -> Iterator[None]:
        with super().__getitem__(name):
            put = self._bench.records.sessions.put
            for each in stored(self._bench).values():
                self._write(put("c", replace(each, owed=OWED)))
            self._held.add(name)
            yield
            self._held.remove(name)

    def write(self, *batches: Batch) -> None:
        names = {find_session(key) for batch in batches for key in batch} - {None}
        assert names <= self._held
        self._write(*batches)


OWED = (("i-P", 1, 1),)


def commit_cut(context: Context) -> None:
    commit(context, replace(start("A"), commits=((NEW, job("A"), False),)))


def come_back_to_a_link(context: Context) -> None:
    once_more = Return(job("A"), 2, "second", False, "first", fed=True)
    with patch.object(returning, "start", lambda context, operation: Done()):
        outcome = come_back(context, once_more)
    assert isinstance(outcome, Done)
    context.records.write(outcome.store)


def start_without_session(context: Context) -> None:
    with pytest.raises(PermanentError, match="has lost its session"):
        starting.start(context, start("A"))


def put_accepted(context: Context, **more: object) -> Incarnation:
    accepted = Incarnation(job("A"), 1, start("A").engine_job_id, StartState.ACCEPTED)
    incarnation = replace(accepted, **more)  # type: ignore[arg-type]
    context.records.write(context.records.incarnations.put("c", incarnation))
    return incarnation


def end(context: Context) -> None:
    stop = Stop("edge-a", "A", 1, put_accepted(context).engine_job_id)
    context.store(conclude(context, stop, None))


def start_anew_while_the_broker_is_silent(context: Context) -> None:
    put_accepted(context, end=EndState.ENDED)

    def fail(site: str, client_ids: object) -> BrokerView:
        raise UnreachableError(f"cannot reach the broker of {site}")

    starting.start(replace(context, views=SharedViews(fail)), start("A", attempt=2))


def give_up_drain(context: Context) -> None:
    drain = Drain("edge-a", job("A").source, OLD, "Old", (), "edge-a", start("A").engine_job_id)
    context.store(Draining(drain, context).give_up("it hangs"))


def give_up_releasing(context: Context) -> None:
    released = Release("edge-a", job("A").source, OLD, "Old", False)
    give_up_release(context, released, "it is away")


@pytest.mark.parametrize(
    ("operate", "own", "new"),
    [
        (commit_cut, {}, {"instead_of": OLD}),
        (come_back_to_a_link, {"instead_of": NEW}, {}),
        (start_without_session, {"former": NEW}, {"followed_by": OLD}),
        (end, {}, {}),
        (lambda context: record_forms(context, [start("A")]), {"job": OTHER_JOB}, {}),
        (
            start_anew_while_the_broker_is_silent,
            {"drained": True},
            {"link": job("A").sink, "job_name": None},
        ),
        (give_up_drain, {}, {}),
        (give_up_releasing, {}, {}),
    ],
    ids=["commit", "return", "lost session", "end", "forms", "silent", "drain", "release"],
)
def test_a_session_is_read_under_its_lock_by_whoever_writes_it(
    bench: Bench,
    reader: Reader,
    operate: Callable[[Context], None],
    own: dict[str, object],
    new: dict[str, object],
) -> None:
    locks = BusyLocks(bench)
    session_locks = SessionLocks()
    session_locks.writing = locks
    context = replace(reader.context(), session_locks=session_locks)
    client_id = context.source_client_id(job("A"))
    put(bench, session(client_id, "A", **own), session(NEW, "New", **new))
    put(bench, session(OLD, "Old"))
    before = stored(bench)
    with patch.object(bench.records, "write", locks.write):
        operate(context)
    after = stored(bench)
    changed = [n for n in after if replace(after[n], owed=()) != before[n]]
    assert changed, "nothing was written"
    assert [each for each in changed if after[each].owed != OWED] == []


@pytest.mark.parametrize("operate", [end, give_up_drain], ids=["end", "drain given up"])
def test_a_session_is_written_together_with_the_outcome(
    bench: Bench, reader: Reader, operate: Callable[[Context], None]
) -> None:
    """A service that is killed leaves either both or neither of them."""
    context = reader.context()
    own = session(context.source_client_id(job("A")), "A")
    put(bench, own, session(OLD, "Old"))
    before, seen = stored(bench), list[dict[str, Session]]()
    store = Context.store

    def look(context: Context, outcome: Done) -> None:
        seen.append(stored(bench))
        store(context, outcome)

    with patch.object(Context, "store", look):
        operate(context)
    assert seen == [before]
    assert stored(bench) != before


@pytest.mark.parametrize(
    "operation",
    [
        Switch("edge-a", (start("A"),), (HAND_OVER,)),
        Switch("edge-a", (start("A"),), joining=(HAND_OVER,)),
    ],
    ids=["handover", "joining"],
)
def test_a_switch_that_is_repeated_changes_nothing(
    bench: Bench, reader: Reader, operation: Switch
) -> None:
    """The service may be killed between its one write and that of its outcome."""
    context = reader.context()
    put(bench, session(OLD, "Old"), session(NEW, "New", follows=OLD))
    put(bench, session(context.source_client_id(job("A")), "A", begun=True))
    reader.has_taken(7)
    before = stored(bench)
    assert switch(context, operation) == Done()
    after, incarnation = stored(bench), context.find_incarnation("A")
    assert incarnation is not None and after != before
    broker("edge-a").taken.clear()
    assert switch(context, operation) == Done()
    assert (stored(bench), context.find_incarnation("A")) == (after, incarnation)


def release(context: Context) -> None:
    leaving = Release("edge-a", job("A").source, context.source_client_id(job("A")), "A", False)
    links.release(context, leaving)


@pytest.mark.parametrize(
    "operate",
    [
        lambda context: reserve(
            context,
            Reserve("edge-a", job("A").source, context.source_client_id(job("A")), "A"),
        ),
        release,
        start_without_session,
        lambda context: starting.start(context, start("A")),
    ],
    ids=["reserve", "release", "lost session", "start"],
)
def test_a_session_is_reached_and_begins_to_be_read_under_its_lock(
    bench: Bench,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    operate: Callable[[Context], object],
) -> None:
    """Otherwise what renews or restores it at the same time would end it or disconnect the
    reader."""
    context = reader.context()
    client_id = context.source_client_id(job("A"))
    others = operate is start_without_session
    put(bench, session(client_id, "A", former=NEW if others else None))
    if others:
        put(bench, session(NEW, "New", followed_by=OLD), session(OLD, "Old"))
    seen: list[bool] = []

    def note() -> None:
        """Whether another thread could have the lock now."""
        lock: Any = context.reserving[client_id]
        with ThreadPoolExecutor(1) as other:
            seen.append(not other.submit(lock.acquire, blocking=False).result())

    for name in ("reserve", "release"):
        original = getattr(MemoryBroker, name)

        def reach(*args: Any, original: Any = original, **more: Any) -> Any:
            note()
            return original(*args, **more)

        monkeypatch.setattr(MemoryBroker, name, reach)
    write = bench.records.write

    def note_start(*batches: Batch) -> None:
        if any(
            key == "inv/c/A" and context.find_incarnation("A") is None for key in chain(*batches)
        ):
            note()
        write(*batches)

    monkeypatch.setattr(bench.records, "write", note_start)
    operate(context)
    assert set(seen) == {True}


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


# -- a reader that does not run -----------------------------------------------------------


def test_a_drain_ends_soon_whose_reader_the_engine_does_not_know(reader: Reader) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s / 2
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s
    with pytest.raises(PermanentError) as error:
        drain.poll()
    assert str(error.value) == (
        "cannot drain edge-a/A-in: Old is not known to edge-a any more; apply again"
    )


def test_a_drain_ends_soon_whose_reader_has_ended(reader: Reader) -> None:
    reader.bench.run((start("A"), ()))
    engine("edge-a").fail(start("A").engine_job_id, "no memory")
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    with pytest.raises(
        PermanentError, match=r"^cannot drain edge-a/A-in: Old is failed; apply again$"
    ):
        drain.poll()


def test_a_drain_whose_reader_runs_goes_on(reader: Reader) -> None:
    reader.bench.run((start("A"), ()))
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    for _ in range(4):
        assert not ends(drain)
        reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    reader.has_taken(7)
    assert ends(drain)


def test_a_drain_whose_reader_nobody_can_ask_about_waits_for_its_site(reader: Reader) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,))
    assert not ends(drain)
    engine("edge-a").unreachable = True
    assert not ends(drain)
    reader.bench.clock.ahead_s += PATIENT.drain_ask_s + 1
    with pytest.raises(UnreachableError):
        drain.poll()


def test_a_followed_drain_whose_reader_nobody_can_stop_waits_for_its_site_at_once(
    reader: Reader,
) -> None:
    sent(7)
    drain = reader.drain(going_on=(SINK,), followed=True)
    assert not ends(drain)
    engine("edge-a").unreachable = True
    with pytest.raises(UnreachableError):
        drain.poll()


def test_a_change_is_blocked_while_nobody_can_ask_about_a_reader(reader: Reader) -> None:
    bench = reader.bench
    bench.run((start("A"), ()))
    sent(7)
    engine("edge-a").unreachable = True
    operation = reader.drain(going_on=(SINK,)).operation
    execution, thread = bench.start(
        (operation, ()), patience=replace(PATIENT, drain_ask_s=0.0, drain_idle_s=LIMIT_S)
    )
    blocked = (ChangeState.BLOCKED, [OperationState.BLOCKED])  # between two attempts it is running
    wait_for(lambda: (execution.change.state, states(execution.change)) == blocked)
    engine("edge-a").unreachable = False
    reader.has_taken(7)
    join(thread)
    assert states(execution.change) == [DONE]


# -- all of it ----------------------------------------------------------------------------

FORCED = replace(WAIT, force=True)
OUT: dict[str, Any] = {"outputs": [{"site": "edge-a", "topic": "y", "client_id": "out"}]}
P = job_body("P", source_topic="in", sink_topic="x")
Q = job_body("Q", source_topic="x", sink_topic="y")
R = job_body("R", source_topic="x", sink_topic="y")
BETWEEN = job_body("R", source_topic="x", sink_topic="x2")
Q2 = job_body("Q", source_topic="x2", sink_topic="y")


@dataclass
class Feed:
    """Numbers that come in at every call of these kinds to the engine."""

    kinds: tuple[str, ...]
    sent: int = 0

    def __call__(self, kind: str, subject: str) -> None:
        if kind in self.kinds:
            self.send(2)

    def send(self, count: int) -> None:
        payloads = [str(self.sent + n).encode() for n in range(count)]
        self.sent += count
        World.current().feed("tcp://edge-a.test:1883", "in", payloads, "sensor")
        World.current().pump()


def out() -> list[int]:
    World.current().pump()
    return [int(payload) for payload in broker("edge-a").take("out")]


def apply(service: Service, *jobs: JsonObject, request: ApplyRequest = FORCED) -> ChangeReport:
    body = service.compositions.apply(composition(*jobs, **OUT), request)
    assert body.change is not None
    return service.changes.get(body.change)


@pytest.mark.parametrize("new", [(P, R), (P, BETWEEN, Q2)], ids=["replaced", "inserted"])
def test_what_comes_while_a_link_changes_hands_comes_out_once(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    """What comes between the reservation and the stop lies in both sessions."""
    apply(service, P, Q)
    feed = Feed(("try_main", "stop", "submit", "save_progress"))
    feed.send(5)
    engine("edge-a").before = feed
    assert apply(service, *new).state == "done"
    engine("edge-a").before = None
    feed.send(5)
    assert feed.sent > 10
    assert out() == list(range(feed.sent))
    assert not any(broker("edge-a").abandoned[c] for c in broker("edge-a").sessions)
    assert service.composition_views.plan("c").operations == ()


@pytest.mark.parametrize("new", [(R,), (BETWEEN, Q2)], ids=["replaced", "inserted"])
def test_a_link_that_another_composition_feeds_and_a_third_reads_changes_hands(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    beside = job_body("S", source_topic="x", sink_topic="z")
    others = {"outputs": [{"site": "edge-a", "topic": "z", "client_id": "beside"}]}
    service.compositions.apply(composition(P, name="feeds"), WAIT)
    service.compositions.apply(composition(beside, name="reads", **others), WAIT)
    apply(service, Q)
    feed = Feed(("try_main", "stop", "submit", "save_progress"))
    feed.send(5)
    engine("edge-a").before = feed
    assert apply(service, *new).state == "done"
    engine("edge-a").before = None
    feed.send(5)
    assert feed.sent > 10
    assert out() == list(range(feed.sent))
    assert [int(payload) for payload in broker("edge-a").take("beside")] == list(range(feed.sent))


def test_the_producer_of_a_link_that_another_composition_reads_is_replaced(
    service: Service,
) -> None:
    service.compositions.apply(composition(P, name="feeds"), WAIT)
    apply(service, Q)
    feed = Feed(("try_main", "stop", "submit", "save_progress"))
    feed.send(5)
    engine("edge-a").before = feed
    other = job_body("P2", source_topic="in", sink_topic="x")
    change = service.compositions.apply(composition(other, name="feeds"), WAIT).change
    assert service.changes.get(change).state == "done"
    engine("edge-a").before = None
    feed.send(5)
    assert out() == list(range(feed.sent))


SHORT = (
    job_body("Q", source_topic="in", sink_topic="x"),
    job_body("R", source_topic="x", sink_topic="y"),
    job_body("S", source_topic="x", sink_topic="z"),
)
LONG = (
    job_body("P", source_topic="in", sink_topic="w"),
    job_body("Q", source_topic="w", sink_topic="x"),
    job_body("R", source_topic="x", sink_topic="y"),
    job_body("S", source_topic="w", sink_topic="z"),
)


@pytest.mark.parametrize(("old", "new"), [(SHORT, LONG), (LONG, SHORT)], ids=["in", "out"])
def test_a_reader_that_goes_upstream_or_down_as_a_job_is_inserted_gets_everything_once(
    service: Service, old: tuple[JsonObject, ...], new: tuple[JsonObject, ...]
) -> None:
    """S reads what the first job writes: what that took until it stopped, and from then on."""
    outputs = [*OUT["outputs"], {"site": "edge-a", "topic": "z", "client_id": "beside"}]

    def change(*jobs: JsonObject) -> None:
        description = composition(*jobs, outputs=outputs)
        body = service.compositions.apply(description, WAIT)
        assert service.changes.get(body.change).state == "done"

    change(*old)
    feed = Feed(("try_main", "stop", "submit", "save_progress", "status"))
    feed.send(5)
    engine("edge-a").before = feed
    change(*new)
    engine("edge-a").before = None
    feed.send(5)
    assert feed.sent > 10
    assert out() == list(range(feed.sent))
    assert [int(payload) for payload in broker("edge-a").take("beside")] == list(range(feed.sent))


def test_a_link_can_be_handed_back_and_forth(service: Service) -> None:
    apply(service, P, Q)
    feed = Feed(("stop", "submit"))
    engine("edge-a").before = feed
    for reader in (R, Q, R):
        assert apply(service, P, reader).state == "done"
    engine("edge-a").before = None
    feed.send(1)
    assert out() == list(range(feed.sent))


def lose_session_of(name: str) -> Callable[[], None]:
    """Let the broker lose a job's session, as one that is killed soon after a reservation."""

    def lose() -> None:
        sessions = broker("edge-a").sessions
        (client_id,) = (each for each in sessions if f"-{name}-" in each)
        del sessions[client_id]

    return lose


def test_nothing_is_lost_when_the_broker_loses_the_session_of_a_follower(
    service: Service,
) -> None:
    apply(service, P, Q)
    feed = Feed(("submit", "save_progress"))
    feed.send(3)
    lose = lose_session_of("R")

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        if kind == "stop":
            lose()

    engine("edge-a").before = kill
    first = apply(service, P, R)
    assert first.state == "failed"
    assert "has lost its session on x since it was reserved; apply again: Q then" in first.error
    engine("edge-a").before = feed
    feed.send(3)
    assert apply(service, P, R).state == "done"
    engine("edge-a").before = None
    feed.send(3)
    assert out() == list(range(feed.sent))
    (running,) = (i for i in engine("edge-a").running() if i.submission.job_name != "P")
    assert running.submission.job_name == "R"


def test_a_broker_that_is_killed_before_a_handover_forgets_nothing_that_was_taken(
    service: Service,
) -> None:
    """Also of a link that all producers leave. One of them sends again what the broker may have
    forgotten: the new reader does not take it."""
    apply(service, P, Q)
    feed = Feed(("stop",))
    queues = broker("edge-a")
    World.current().pump()
    saved = deepcopy(queues.taken)
    feed.send(3)
    World.current().pump()
    lose, stopped, lost = lose_session_of("R"), list[str](), list[None]()

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        stopped.extend([kind] if kind == "stop" else [])
        if kind == "save_progress" and len(stopped) == 2:  # the reader's, after the producer's
            queues.taken.clear()
            queues.taken.update(saved)
            if not lost:
                lost.append(lose())

    new = {**P, "job_name": "P2"}, R
    engine("edge-a").before = kill
    failed = apply(service, *new)
    assert "has lost its session on x since it was reserved" in failed.error

    def send_again(kind: str, subject: str) -> None:
        if kind == "submit":
            for message in [m for m in list(queues.published["x"]) if m.mark is None]:
                queues.deliver("x", message)

    engine("edge-a").before = send_again
    assert apply(service, *new).state == "done"
    engine("edge-a").before = None
    feed.send(3)
    assert out() == list(range(feed.sent))


HEAD, HEAD2 = ({**P, "job_name": n, "site": "cloud"} for n in ("H", "H2"))
HEAD |= {"source_site": "edge-a", "sink_site": "edge-a"}
HEAD2 |= {"source_site": "edge-a", "sink_site": "edge-a", "sink_topic": "x2"}


@pytest.mark.parametrize(
    "new",
    [
        ({**HEAD2, "sink_topic": "y"},),
        (HEAD2, {**Q2, "upgrade": "stateless"}),
        (HEAD2, {**Q2, "job_name": "Q3"}),
    ],
    ids=["removed", "moved", "replaced"],
)
def test_a_lost_job_that_leaves_its_link_takes_what_its_producer_had_read(
    service: Service, new: tuple[JsonObject, ...]
) -> None:
    apply(service, HEAD, {**Q, "upgrade": "stateless"})  # no state that its engine loses, too
    feed = Feed(("stop", "submit"))
    feed.send(5)
    engine("edge-a").forget_jobs()
    feed.send(5)
    engine("cloud").before = feed
    assert apply(service, *new).state == "done"
    engine("cloud").before = None
    feed.send(5)
    assert out() == list(range(feed.sent))
    assert service.composition_views.plan("c").operations == ()


@pytest.mark.parametrize("tail", [Q2, {**Q2, "job_name": "Q3"}], ids=["moved", "removed"])
def test_nothing_is_lost_when_readers_downstream_have_left_before_a_follower_failed_to_start(
    service: Service, tail: JsonObject
) -> None:
    """What came since P has stopped is in its session only: it comes back, and so does who reads
    what it writes."""
    first, head = {**P, "job_name": "A"}, {**P, "job_name": "B", "sink_topic": "x2"}
    apply(service, first, Q)
    feed = Feed(("submit", "save_progress"))
    feed.send(3)
    lose = lose_session_of("B")

    def kill(kind: str, subject: str) -> None:
        feed(kind, subject)
        if kind == "stop" and "-A-" in str(broker("edge-a").sessions) and not lost:
            lost.append(kind)
            lose()

    lost: list[str] = []
    engine("edge-a").before = kill
    failed = apply(service, head, tail)
    assert failed.state == "failed"
    assert "has lost its session on in since it was reserved" in failed.error
    engine("edge-a").before = feed
    feed.send(3)
    assert apply(service, head, tail).state == "done"
    engine("edge-a").before = None
    feed.send(3)
    assert out() == list(range(feed.sent))
    assert service.composition_views.plan("c").operations == ()


def test_a_session_that_is_reserved_anew_holds_nothing_from_before(service: Service) -> None:
    """As when a broker that was killed has a session again which had been released."""
    apply(service, P, Q)
    feed = Feed(())
    queues = broker("edge-a")
    (released,) = (each for each in queues.sessions if "-Q-" in each)
    apply(service, P, R)
    assert released not in queues.sessions
    queues.subscribe(released, "x")
    feed.send(3)
    assert apply(service, P, R, Q).state == "done"
    feed.send(3)
    assert sorted(out()) == [0, 1, 2, 3, 3, 4, 4, 5, 5]  # two readers from then on


def test_going_back_after_a_start_that_failed_loses_and_repeats_nothing(service: Service) -> None:
    apply(service, P, Q)
    feed = Feed(("stop", "save_progress"))
    feed.send(3)
    engine("edge-a").before = feed
    engine("edge-a").refuse("submit", 1, PermanentError("cannot start R: no"))
    assert apply(service, P, R).state == "failed"
    feed.send(3)
    assert apply(service, P, Q).state == "done"
    engine("edge-a").before = None
    feed.send(3)
    assert out() == list(range(feed.sent))
    assert service.composition_views.plan("c").operations == ()


def test_nothing_is_lost_when_a_change_is_cancelled_while_a_followed_reader_is_drained(
    service: Service,
) -> None:
    """What came before the follower's session was reserved waits in the old one only."""
    world = World.current()
    ends_of = {"inputs": [{"site": "edge-a", "topic": "in"}], **OUT}
    first = composition({**Q, "source_topic": "in"}, **ends_of)
    then = composition({**R, "source_topic": "in"}, **ends_of)
    service.compositions.apply(first, WAIT)
    world.auto_pump = False
    world.feed("tcp://edge-a.test:1883", "in", [b"0", b"1", b"2"], "sensor")

    def has(change: str, kind: str, state: str) -> bool:
        operations = service.changes.get(change).operations
        return any((o.kind, o.state) == (kind, state) for o in operations)

    change = service.compositions.apply(then, ApplyRequest()).change
    wait_for(lambda: has(change, "drain", "running"))
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    again = service.compositions.apply(then, ApplyRequest()).change
    wait_for(lambda: has(again, "drain", "running") or has(again, "stop", "done"))
    world.auto_pump = True
    wait_for(lambda: not service.changes.all_under_way())
    assert service.changes.get(again).state == "done"
    assert out() == [0, 1, 2]


# -- what a sink said of a link that it has left -------------------------------------------


def test_what_a_sink_said_is_cleared_by_the_next_plan_if_the_change_ended_before(
    bench: Bench,
) -> None:
    """The start is stored with what is left to clear, and the clearing takes it off the list."""
    gone, own = StaleSink("edge-b", job("B").sink, "speck-i-A-0-out"), start("A")
    bench.run((replace(own, stale=(gone,)), ()))
    deployed = bench.records.incarnations.get("c", "A")
    assert deployed is not None and deployed.stale == (gone,)
    broker("edge-b").sent[gone.client_id] = Sent("i-A", 1, 7)
    assert states(bench.run((Clear("edge-b", "A", gone.link, (gone.client_id,)), ()))) == [DONE]
    deployed = bench.records.incarnations.get("c", "A")
    assert deployed is not None and deployed.stale == ()
    assert broker("edge-b").sent == {}


def test_what_a_sink_says_of_the_link_that_it_has_again_is_not_cleared(bench: Bench) -> None:
    bench.run((start("A"), ()))
    own = sink_client_id(bench.records.installation, "A", job("A").source, job("A").sink)
    broker("edge-a").sent[own] = Sent("i-A", 1, 7)
    bench.run((Clear("edge-a", "A", job("A").sink, (own,)), ()))
    assert set(broker("edge-a").sent) == {own}
