"""What ran before comes back when a start fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Event

import pytest

from binders.memory import MemoryEngine, World
from speck.binding import EngineCapability
from speck.errors import EngineRefusedError, PermanentError, UnreachableError
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import HASTY, MemoryKeeper
from tests.service_helpers import LIMIT_S, broker, composition, engine
from tests.service_helpers import job_body as job
from tests.unit.deploy.operations.state_transfer.moves import (
    apply,
    at,
    await_state,
    begin,
    deployed,
    feed,
    operation,
    running,
)
from tests.waiting import wait_for


def test_what_ran_before_comes_back_when_the_start_is_refused(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").refuse("submit", 1, EngineRefusedError("cannot start A: no memory"))
    change = apply(service, at("cloud"), state="failed")
    assert change.error == ("cannot start A: no memory; A came back as attempt 3 on edge-a")
    assert operation(service, change.id, "return").state == "done"
    feed(b"2")
    assert running()["edge-a"].ledger.messages == 2
    events = [e for e in service.records.events.after() if e.kind == "job"]
    assert [e.message for e in events] == ["A came back as attempt 3 on edge-a"]


def test_what_ran_before_comes_back_when_its_state_cannot_be_carried(
    service: Service, keeper: MemoryKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(service, at("edge-a"))
    feed(b"1")

    def fails(transfer: object) -> None:
        raise EngineRefusedError("cannot carry: no room")

    monkeypatch.setattr(keeper, "carry", fails)
    change = apply(service, at("cloud"), state="failed")
    assert change.error == "cannot carry: no room; A came back as attempt 3 on edge-a"
    assert running()["edge-a"].ledger.messages == 1


def move_to_slow_cloud(service: Service) -> str:
    """Move A, which has taken a message, to the cloud, where its tasks do not start yet; the
    change."""
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    change = begin(service, at("cloud"))
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    return change


def forget_at_status(kind: str, _: str) -> None:
    if kind == "status":
        engine("cloud").before = None
        engine("cloud").forget_jobs()


@pytest.mark.parametrize("before", [None, forget_at_status], ids=["failed", "and forgotten"])
def test_the_way_back_goes_on_from_what_the_failed_one_has_taken(
    service: Service, before: Callable[[str, str], None] | None
) -> None:
    """It fails after a checkpoint: what that acknowledged is nowhere but in its state."""
    change = move_to_slow_cloud(service)
    (incarnation,) = engine("cloud").jobs.values()
    with World.current().lock:
        incarnation.open()
        World.current().feed("tcp://edge-a.test:1883", "A-in", [b"2"], "sensor")
        incarnation.work()
        incarnation.checkpoint()
        engine("cloud").before = before
        engine("cloud").fail(incarnation.id, "no memory")
    await_state(service, change, "failed")
    assert running()["edge-a"].ledger.messages == 2


def test_the_way_back_repeats_nothing_that_the_failed_one_has_published(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs when its start fails, and has published since its last checkpoint."""
    apply(service, at("edge-a"))
    feed(b"1")
    World.current().auto_pump = False

    def is_connected(*_: object) -> bool:
        World.current().feed("tcp://edge-a.test:1883", "A-in", [b"2"], "sensor")
        World.current().pump(checkpoint=False)
        return False

    monkeypatch.setattr(MemoryEngine, "is_connected", is_connected)
    service.executions.patience = replace(HASTY, connect_s=0.0, start_s=0.2)
    apply(service, at("cloud"), state="failed")
    monkeypatch.undo()
    World.current().pump()
    assert running()["edge-a"].ledger.messages == len(broker("edge-a").published["A-in"])
    assert len(broker("edge-a").published["A-out"]) == len(broker("edge-a").published["A-in"])


def test_a_failed_start_is_not_stopped_where_the_engine_takes_no_savepoints(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.connections.close()  # a binder tells its capabilities when it is opened
    engine("cloud").capabilities = frozenset(EngineCapability) - {EngineCapability.STATE}
    apply(service, at("edge-a", upgrade="stateless"))
    monkeypatch.setattr(MemoryEngine, "is_connected", lambda *_: False)
    service.executions.patience = replace(HASTY, connect_s=0.0, start_s=0.2)
    apply(service, at("cloud", upgrade="stateless"), state="failed")
    assert list(running()) == ["edge-a"]
    assert (engine("cloud").count("stop"), engine("cloud").count("cancel")) == (0, 1)


def test_a_start_that_never_gets_its_tasks_is_ended_before_the_way_back(
    service: Service,
) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    service.executions.patience = replace(HASTY, start_s=0.05)
    change = begin(service, at("cloud"))
    await_state(service, change, "failed")
    assert list(running()) == ["edge-a"]
    assert all(job.state.terminal for job in engine("cloud").jobs.values())


def test_nothing_comes_back_while_the_target_does_not_answer(service: Service) -> None:
    change = move_to_slow_cloud(service)
    engine("cloud").unreachable = True
    await_state(service, change, "blocked")
    assert not engine("edge-a").running()
    engine("cloud").unreachable = False
    engine("cloud").let_go()
    await_state(service, change, "done")
    assert list(running()) == ["cloud"]


def test_a_start_that_its_engine_has_forgotten_fails_long_before_its_limit(
    service: Service,
) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    service.executions.patience = replace(HASTY, start_s=1000.0, forgotten_s=0.1)
    change = begin(service, at("cloud"))
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    engine("cloud").forget_jobs()
    await_state(service, change, "failed")
    assert "cloud does not know it any more" in service.changes.get(change).error
    assert running()["edge-a"].ledger.messages == 1


def test_an_apply_after_a_way_back_goes_on_to_what_is_wanted(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").refuse("submit", 1, EngineRefusedError("cannot start A: no memory"))
    apply(service, at("cloud"), state="failed")
    feed(b"2")
    apply(service, at("cloud"))
    assert running()["cloud"].ledger.messages == 2
    assert service.composition_views.plan("c").operations == ()


def test_nothing_comes_back_to_a_link_that_its_reader_has_left(service: Service) -> None:
    def chain(link: str) -> tuple[JsonObject, JsonObject]:
        return job("A", sink_topic=link), job("B", source_topic=link)

    apply(service, *chain("x"))
    desired = composition(*chain("y"))
    plan = service.compositions.apply(desired, ApplyRequest(dry_run=True)).plan.text
    assert "return B" in plan
    assert "return A" not in plan


def _feeding_at_submit(kind: str, subject: str) -> None:
    if kind == "submit":
        feed(b"1", b"2")


def test_messages_wait_for_what_came_back(service: Service) -> None:
    apply(service, at("edge-a"), job("B", source_topic="A-out"))
    engine("edge-b").refuse("submit", 1, EngineRefusedError("cannot start A: no"))
    engine("edge-b").before = _feeding_at_submit
    apply(service, at("edge-b"), job("B", source_topic="A-out"), state="failed")
    World.current().pump()
    assert [m.payload for m in broker("edge-a").published["A-out"]] == [b"1", b"2"]
    assert not any(broker("edge-a").unread["A-out"])


def test_a_refusal_of_a_start_that_arrived_before_is_no_word_that_it_does_not_run(
    service: Service,
) -> None:
    """Its answer was lost; sent again, its `main` fails before the engine knows the id again."""
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").refuse("submit", 1, UnreachableError("cannot reach cloud"), after=True)
    engine("cloud").refuse("submit", 1, EngineRefusedError("cannot start A: main failed"))
    apply(service, at("cloud"))
    assert list(running()) == ["cloud"]


def _never_connected_at(
    site: str, monkeypatch: pytest.MonkeyPatch, service: Service, start_s: float
) -> Event:
    """The source of what starts at `site` never connects, so that the start is given up after
    `start_s`; but not before the returned event is set."""
    service.executions.patience = replace(
        HASTY, connect_s=0.0, start_s=start_s, forgotten_s=0.05, stop_poll_s=0.01
    )
    look_on, is_connected = Event(), MemoryEngine.is_connected

    def is_connected_here(client: MemoryEngine, job_id: str) -> bool | None:
        is_there = client._engine is engine(site)
        if is_there:
            look_on.wait(LIMIT_S)
        known = is_connected(client, job_id)
        return False if is_there else known

    monkeypatch.setattr(MemoryEngine, "is_connected", is_connected_here)
    return look_on


@pytest.mark.parametrize("call", [1, 2, 3])
def test_the_way_back_goes_on_from_what_a_forgotten_one_has_taken(
    service: Service, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """It runs and takes checkpoints, its engine forgets it, and it never counted as started: be it
    forgotten just before its engine is asked whether it is connected, or later."""
    apply(service, at("edge-a"))
    feed(b"1")
    look_on = _never_connected_at("cloud", monkeypatch, service, start_s=1000.0)
    change = begin(service, at("cloud"))
    wait_for(lambda: len(engine("cloud").running()) == 1 and deployed(service).accepted)
    feed(b"2")
    calls = count(1)

    def forgets(kind: str, _: str) -> None:
        if next(calls) == call:
            engine("cloud").forget_jobs()

    engine("cloud").before = forgets
    look_on.set()
    await_state(service, change, "failed")
    World.current().pump()
    assert running()["edge-a"].ledger.messages == 2


def leave_unanswered(service: Service) -> str:
    """Update A while its engine carries out the start, but does not answer it; the change."""
    apply(service, at("edge-a"))
    feed(b"1")

    def fall_silent(kind: str, _: str) -> None:
        if kind == "submit":
            engine("edge-a").unreachable = engine("edge-a").hears = True

    engine("edge-a").before = fall_silent
    change = begin(service, at("edge-a", args=["--2"]))
    await_state(service, change, "blocked")
    engine("edge-a").before = None
    return change


def restart_engine() -> None:
    """It answers again, and knows no job; the last one has taken a message."""
    feed(b"2")
    engine("edge-a").forget_jobs()
    engine("edge-a").unreachable = engine("edge-a").hears = False


@pytest.mark.parametrize("args", [["--2"], ["--3"]], ids=["wanted", "replaced"])
def test_a_start_without_an_answer_that_ran_and_was_forgotten_is_not_sent_again(
    service: Service, args: list[str]
) -> None:
    change = leave_unanswered(service)
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    restart_engine()
    change_after = apply(service, at("edge-a", args=args), state="failed")
    assert "it ran, and edge-a does not know it any more; apply again" in change_after.error
    apply(service, at("edge-a", args=args))
    assert running()["edge-a"].ledger.messages == 2
    assert running()["edge-a"].submission.args[-1] == args[0]


def test_the_way_back_goes_on_from_what_one_without_an_answer_has_taken(service: Service) -> None:
    change = leave_unanswered(service)
    restart_engine()
    await_state(service, change, "failed")
    assert running()["edge-a"].ledger.messages == 2
    assert "--2" not in running()["edge-a"].submission.args


def test_a_start_that_has_not_arrived_is_sent_again_where_nobody_can_look_for_checkpoints(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = leave_unanswered(service)
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    with World.current().lock:
        engine("edge-a").jobs.popitem()
    engine("edge-a").unreachable = engine("edge-a").hears = False

    def refuse(*_: object) -> None:
        raise PermanentError("cannot list: no agent")

    monkeypatch.setattr(MemoryKeeper, "newest", refuse)
    apply(service, at("edge-a", args=["--2"]))
    assert running()["edge-a"].ledger.messages == 1


def test_a_plan_that_is_looked_at_takes_nothing_from_the_way_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks run, so it counts as running for the plan; the change may give it up yet."""
    apply(service, at("edge-a"))
    feed(b"1")
    look_on = _never_connected_at("cloud", monkeypatch, service, start_s=1.0)
    change = begin(service, at("cloud"))
    wait_for(lambda: len(engine("cloud").running()) == 1 and deployed(service).accepted)
    assert service.composition_views.plan("c").operations == ()
    look_on.set()
    await_state(service, change, "failed")
    assert running()["edge-a"].ledger.messages == 1
    assert service.changes.get(change).error == (
        "cannot start A: all its tasks run at cloud, but its source is not connected to"
        " tcp://edge-a.test:1883; A came back as attempt 3 on edge-a"
    )
