"""Moves with state between sites that share no storage, and ways back from failed starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from binders.memory import MemoryEngine, World
from speck.binding import EngineCapability
from speck.errors import EngineRefusedError, PermanentError, UnreachableError
from speck.model.change import ChangeReport
from speck.model.plan_outline import OperationOutcome
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import HASTY, MemoryKeeper, memory_service, site_body
from tests.service_helpers import DONE, LIMIT_S, broker, composition, engine, look_anew
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

SOON = ApplyRequest(wait_s=0.05)
SITES = ("edge-a", "edge-b", "cloud")


@pytest.fixture
def keeper() -> MemoryKeeper:
    return MemoryKeeper()


@pytest.fixture
def service(tmp_path: Path, keeper: MemoryKeeper) -> Iterator[Service]:
    with memory_service(tmp_path, [site_body(site) for site in SITES], keeper=keeper) as opened:
        yield opened


def at(site: str, **more: Any) -> JsonObject:
    """A at a site, with its links at edge-a."""
    return job("A", site, source_site="edge-a", sink_site="edge-a", **more)


def apply(service: Service, *jobs: JsonObject, state: str = "done") -> ChangeReport:
    body = service.compositions.apply(composition(*jobs), DONE)
    assert body.change is not None
    change = service.changes.get(body.change)
    assert change.state == state, change
    return change


def feed(*payloads: bytes) -> None:
    World.current().feed("tcp://edge-a.test:1883", "A-in", payloads, "sensor")
    World.current().pump()


def running() -> dict[str, Any]:
    """The one incarnation of A, by its site."""
    jobs = [(site, job) for site in SITES for job in engine(site).running()]
    assert len(jobs) == 1
    return dict(jobs)


def deployed(service: Service) -> Any:
    return service.records.inventory("c").jobs["A"]


def test_state_is_carried_between_the_stop_and_the_start(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    change = apply(service, at("cloud"))
    kinds = [operation.kind for operation in change.operations]
    assert kinds == ["upload", "try", "stop", "carry", "start", "return"]
    assert [operation.state for operation in change.operations] == ["done"] * 5 + ["skipped"]
    incarnation = running()["cloud"]
    assert incarnation.submission.state.startswith("memory:/cloud/carried/")
    assert incarnation.ledger.messages == 2
    assert service.composition_views.plan("c").operations == ()


def test_a_savepoint_lies_in_the_folder_of_its_site_job_and_incarnation(service: Service) -> None:
    apply(service, at("edge-a"))
    job_id = running()["edge-a"].id
    apply(service, at("edge-a", state="stopped"))
    assert deployed(service).savepoint.startswith(f"memory:/edge-a/savepoints/A/{job_id}/")


def test_a_carry_that_is_slow_says_how_far_it_is(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    keeper.looks = 1_000_000
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: "of 1000000 bytes" in str(operation(service, change, "carry")))
    keeper.looks = 1
    wait_for(lambda: service.changes.get(change).state == "done")
    assert operation(service, change, "carry").progress is None


def operation(service: Service, change: str, kind: str) -> OperationOutcome:
    (outcome,) = (o for o in service.changes.get(change).operations if o.kind == kind)
    return outcome


def test_a_carry_waits_for_a_silent_agent(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    keeper.silent = {"cloud"}
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    assert operation(service, change, "carry").state == "blocked"
    keeper.silent = set()
    wait_for(lambda: service.changes.get(change).state == "done")
    assert list(running()) == ["cloud"]


def test_state_is_carried_anew_when_newer_is_there(service: Service, keeper: MemoryKeeper) -> None:
    """The way back has taken something since the state was carried the first time."""
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").refuse("submit", 1, EngineRefusedError("cannot start A: no"))
    apply(service, at("cloud"), state="failed")
    feed(b"2", b"3")
    apply(service, at("cloud"))
    assert running()["cloud"].ledger.messages == 3
    assert ("carry", "cloud") in keeper.calls


def test_a_stopped_job_is_moved_with_its_state_when_it_runs_again(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    apply(service, at("edge-a", state="stopped"))
    apply(service, at("edge-b", state="stopped"))
    apply(service, at("cloud", state="stopped"))
    feed(b"2")
    apply(service, at("cloud"))
    feed(b"3")
    assert running()["cloud"].ledger.messages == 3


def test_the_states_of_the_last_two_starts_are_kept(service: Service) -> None:
    for turn in range(4):
        for site in ("edge-a", "cloud"):
            apply(service, at(site))
            feed(str(turn).encode())
    saved = [path for path in World.current().saved if "chk-" not in path]
    wait_for(lambda: len([p for p in World.current().saved if "chk-" not in p]) <= 4)
    assert saved
    assert running()["cloud"].ledger.messages == 8


# -- an engine that was restarted ---------------------------------------------------------


def test_a_restarted_engine_gets_the_newest_state_that_is_listed(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    engine("edge-a").forget_jobs()
    apply(service, at("edge-a"))
    assert running()["edge-a"].ledger.messages == 2


def test_a_job_whose_engine_was_restarted_is_moved_with_its_state(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    engine("edge-a").forget_jobs()
    apply(service, at("cloud"))
    assert running()["cloud"].ledger.messages == 2


def test_a_job_that_completed_nothing_since_its_move_goes_on_from_what_was_carried(
    service: Service,
) -> None:
    apply(service, at("edge-a"))
    feed(b"1", b"2")
    apply(service, at("cloud"))
    engine("cloud").forget_jobs()
    feed(b"3")
    apply(service, at("cloud"))
    World.current().pump()
    assert running()["cloud"].ledger.messages == 3


def test_a_job_that_never_took_anything_starts_anew(service: Service) -> None:
    apply(service, at("edge-a"))
    engine("edge-a").forget_jobs()
    apply(service, at("edge-a"))
    feed(b"1")
    assert running()["edge-a"].ledger.messages == 1


def test_a_job_whose_state_is_gone_is_never_started_without(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("edge-a").forget_jobs()
    World.current().saved.clear()
    change = apply(service, at("edge-a"), state="failed")
    assert "its state is gone, unless its main sets a checkpoint folder" in change.error
    assert not engine("edge-a").running()


OWN = ["--checkpoints", "memory:/own"]


def look(service: Service) -> None:
    """Let the watch ask the engines for checkpoints."""
    look_anew(service)
    service.watch.poll()


def test_checkpoints_in_a_folder_of_the_job_s_own_are_found_at_a_restarted_engine(
    service: Service,
) -> None:
    apply(service, at("edge-a", args=OWN))
    feed(b"1", b"2")
    look(service)
    feed(b"3")  # newer than what was reported last
    engine("edge-a").forget_jobs()
    apply(service, at("edge-a", args=OWN))
    assert running()["edge-a"].ledger.messages == 3


def test_a_restored_job_with_a_folder_of_its_own_does_not_go_back_to_what_it_began_with(
    service: Service,
) -> None:
    apply(service, at("edge-a", args=OWN))
    feed(b"1", b"2")
    apply(service, at("cloud", args=OWN))
    feed(b"3")
    look(service)
    engine("cloud").forget_jobs()
    apply(service, at("cloud", args=OWN))
    assert running()["cloud"].ledger.messages == 3


def test_state_that_is_gone_from_a_folder_of_the_job_s_own_is_named(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    apply(service, at("cloud", args=OWN))
    feed(b"2")
    look(service)
    job_id = running()["cloud"].id
    engine("cloud").forget_jobs()
    saved = World.current().saved
    for path in [path for path in saved if path.startswith("memory:/own")]:
        del saved[path]
    change = apply(service, at("cloud", args=OWN), state="failed")
    assert f"its main has set memory:/own/{job_id} for its checkpoints, and none" in change.error
    assert not engine("cloud").running()


def test_a_job_in_the_site_s_folder_is_not_written_again(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    before = deployed(service)
    look(service)
    assert deployed(service) is before


def test_a_silent_agent_blocks_a_start(service: Service, keeper: MemoryKeeper) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("edge-a").forget_jobs()
    keeper.silent = {"edge-a"}
    change = service.compositions.apply(composition(at("edge-a")), SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    keeper.silent = set()
    wait_for(lambda: service.changes.get(change).state == "done")
    assert running()["edge-a"].ledger.messages == 1


# -- ways back ----------------------------------------------------------------------------


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


def test_the_way_back_goes_on_from_what_the_failed_one_has_taken(service: Service) -> None:
    """It fails after a checkpoint: what that acknowledged is nowhere but in its state."""
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    (incarnation,) = engine("cloud").jobs.values()
    with World.current().lock:
        incarnation.open()
        World.current().feed("tcp://edge-a.test:1883", "A-in", [b"2"], "sensor")
        incarnation.work()
        incarnation.checkpoint()
        engine("cloud").fail(incarnation.id, "no memory")
    wait_for(lambda: service.changes.get(change).state == "failed")
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
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: service.changes.get(change).state == "failed")
    assert list(running()) == ["edge-a"]
    assert all(job.state.terminal for job in engine("cloud").jobs.values())


def test_nothing_comes_back_while_the_target_does_not_answer(service: Service) -> None:
    apply(service, at("edge-a"))
    engine("cloud").hold_starts = True
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    engine("cloud").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    assert not engine("edge-a").running()
    engine("cloud").unreachable = False
    engine("cloud").let_go()
    wait_for(lambda: service.changes.get(change).state == "done")
    assert list(running()) == ["cloud"]


def test_a_start_that_its_engine_has_forgotten_fails_long_before_its_limit(
    service: Service,
) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    service.executions.patience = replace(HASTY, start_s=1000.0, forgotten_s=0.1)
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    engine("cloud").forget_jobs()
    wait_for(lambda: service.changes.get(change).state == "failed")
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
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").running()) == 1 and deployed(service).accepted)
    feed(b"2")
    calls = count(1)

    def forgets(kind: str, _: str) -> None:
        if next(calls) == call:
            engine("cloud").forget_jobs()

    engine("cloud").before = forgets
    look_on.set()
    wait_for(lambda: service.changes.get(change).state == "failed")
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
    desired = composition(at("edge-a", args=["--2"]))
    change: str = service.compositions.apply(desired, SOON).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
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
    wait_for(lambda: service.changes.get(change).state == "failed")
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


def test_what_fails_and_is_forgotten_at_once_may_have_left_a_state(service: Service) -> None:
    apply(service, at("edge-a"))
    feed(b"1")
    engine("cloud").hold_starts = True
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").jobs) == 1)
    (incarnation,) = engine("cloud").jobs.values()

    def forgets(kind: str, _: str) -> None:
        if kind == "status":
            engine("cloud").before = None
            engine("cloud").forget_jobs()

    with World.current().lock:
        incarnation.open()
        World.current().feed("tcp://edge-a.test:1883", "A-in", [b"2"], "sensor")
        incarnation.work()
        incarnation.checkpoint()
        engine("cloud").before = forgets
        engine("cloud").fail(incarnation.id, "no memory")
    wait_for(lambda: service.changes.get(change).state == "failed")
    assert running()["edge-a"].ledger.messages == 2


def test_a_plan_that_is_looked_at_takes_nothing_from_the_way_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks run, so it counts as running for the plan; the change may give it up yet."""
    apply(service, at("edge-a"))
    feed(b"1")
    look_on = _never_connected_at("cloud", monkeypatch, service, start_s=1.0)
    change = service.compositions.apply(composition(at("cloud")), SOON).change
    wait_for(lambda: len(engine("cloud").running()) == 1 and deployed(service).accepted)
    assert service.composition_views.plan("c").operations == ()
    look_on.set()
    wait_for(lambda: service.changes.get(change).state == "failed")
    assert running()["edge-a"].ledger.messages == 1
    assert service.changes.get(change).error == (
        "cannot start A: all its tasks run at cloud, but its source is not connected to"
        " tcp://edge-a.test:1883; A came back as attempt 3 on edge-a"
    )


def test_the_plan_asks_each_site_once_whether_states_can_be_carried(
    service: Service, keeper: MemoryKeeper
) -> None:
    names = [f"J{n}" for n in range(5)]
    apply(service, *(job(name, "edge-a") for name in names))
    keeper.calls.clear()
    moved = composition(*(job(name, "cloud") for name in names))
    service.compositions.apply(moved, ApplyRequest(dry_run=True))
    assert sorted(keeper.calls) == [("newest", "cloud"), ("newest", "edge-a")]


def test_a_state_that_several_sites_share_is_kept_while_one_was_started_from_it(
    tmp_path: Path,
) -> None:
    sites = [site_body(site) for site in SITES]
    with memory_service(tmp_path, sites, keeper=MemoryKeeper(), apart=False) as service:
        apply(service, at("edge-a"))
        feed(b"1")
        apply(service, at("edge-b"))
        for before, after in (("edge-b", "cloud"), ("cloud", "edge-a"), ("edge-a", "cloud")):
            engine(before).forget_jobs()  # before its first checkpoint
            apply(service, at(after))
        assert running()["cloud"].ledger.messages == 1
