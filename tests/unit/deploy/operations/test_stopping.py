"""Stops with a savepoint, and what happens when that cannot finish."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest

from binders.memory import MemoryEngine, World
from binders.memory.slots import MemoryJob
from speck.binding import JobException, SaveProgress
from speck.deploy.operations import stopping
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done as Outcome
from speck.errors import EngineRefusedError, UnreachableError
from speck.model.change import ChangeReport
from speck.model.job_operations import Stop
from speck.model.observation import EngineView, RunState
from speck.model.plan_outline import OperationOutcome
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import HASTY
from tests.service_helpers import DONE, broker, composition, engine
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

SOON = ApplyRequest(wait_s=0.05)
A = job("A")
A2 = job("A", args=["--2"])


def running() -> MemoryJob:
    """The one incarnation that runs."""
    (job,) = engine("edge-a").running()
    return job


def begin_change(service: Service, *jobs: JsonObject) -> str:
    """A deployed, with a message taken, and a change to `jobs` under way."""
    apply(service, A)
    feed(b"1")
    return str(service.compositions.apply(composition(*jobs), SOON).change)


def apply(service: Service, *jobs: JsonObject) -> None:
    assert service.compositions.apply(composition(*jobs), DONE).state == "done"


def feed(*payloads: bytes) -> None:
    World.current().feed("tcp://edge-a.test:1883", "A-in", payloads, "sensor")
    World.current().pump()


def over(service: Service, change: str) -> ChangeReport:
    wait_for(lambda: not service.changes.all_under_way())
    return service.changes.get(change)


def list_messages(service: Service) -> list[str]:
    return [e.message for e in service.records.events.after() if e.kind == "job"]


def held() -> MemoryJob:
    wait_for(lambda: bool(engine("edge-a").held))
    return engine("edge-a").held[0][0]


def test_a_savepoint_that_fails_is_given_up_for_the_newest_checkpoint(service: Service) -> None:
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)
    old = held()
    with World.current().lock:
        old.savepoints[old.stopping or ""] = SaveProgress(True, failure="declined")
        engine("edge-a").hold_savepoints = False
    assert over(service, change).state == "done"
    assert old.state is RunState.CANCELED
    assert running().ledger.messages == 1
    assert list_messages(service) == [
        "A was cancelled, since its savepoint could not finish: declined; it goes on from its"
        " newest checkpoint"
    ]


@pytest.mark.parametrize("failure", [None, "the job did not terminate"])
def test_what_was_stopped_and_is_not_listed_any_more_goes_on_from_the_savepoint_of_a_good_stop(
    service: Service, monkeypatch: pytest.MonkeyPatch, failure: str | None
) -> None:
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)
    old, trigger = held(), held().stopping
    view, status = MemoryEngine.view, MemoryEngine.status
    progress, ended = MemoryEngine.save_progress, stopping.conclude
    noted: list[str | None] = []

    def listed(self: MemoryEngine) -> EngineView:
        engine_view = view(self)
        gone = {old.id} if old.state.terminal else set()
        return replace(
            engine_view, jobs={k: engine_view.jobs[k] for k in engine_view.jobs.keys() - gone}
        )

    def known(self: MemoryEngine, job_id: str) -> RunState | None:
        return None if job_id == old.id and old.state.terminal else status(self, job_id)

    def report_progress(self: MemoryEngine, job_id: str, trigger_id: str) -> SaveProgress:
        savepoint = progress(self, job_id, trigger_id)
        return (
            replace(savepoint, failure=failure)
            if (job_id, trigger_id) == (old.id, trigger)
            else savepoint
        )

    def note(context: Context, operation: Stop, location: str | None) -> Outcome:
        noted.append(location)
        return ended(context, operation, location)

    monkeypatch.setattr(stopping, "conclude", note)
    for name, replaced in (
        ("view", listed),
        ("status", known),
        ("save_progress", report_progress),
    ):
        monkeypatch.setattr(MemoryEngine, name, replaced)
    engine("edge-a").let_go()
    assert over(service, change).state == "done"
    assert running().ledger.messages == 1
    (location,) = noted
    assert (location is None) is (failure is not None)


def test_a_savepoint_that_comes_no_nearer_is_given_up(service: Service) -> None:
    service.executions.patience = replace(HASTY, stop_idle_s=0.02)
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)
    assert over(service, change).state == "done"
    assert running().ledger.messages == 1
    assert "it made no progress" in list_messages(service)[0]


def test_a_slow_savepoint_is_waited_for_and_says_how_far_it_is(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.executions.patience = replace(HASTY, stop_idle_s=0.5)
    looks = iter(range(10_000))
    original = MemoryEngine.save_progress

    def nearer(binder: MemoryEngine, job_id: str, trigger: str) -> SaveProgress:
        progress = original(binder, job_id, trigger)
        return replace(progress, acknowledged=next(looks), total=10_000)

    monkeypatch.setattr(MemoryEngine, "save_progress", nearer)
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)

    def shown() -> str:
        stop = next(o for o in service.changes.get(change).operations if o.kind == "stop")
        return str(stop.progress)

    wait_for(lambda: "of 10000 subtasks" in shown())
    old = held()
    engine("edge-a").let_go()
    assert over(service, change).state == "done"
    assert old.state is RunState.FINISHED
    assert list_messages(service) == []


def test_a_job_whose_tasks_are_starting_is_stopped_once_they_run(service: Service) -> None:
    """Cancelled just after, it would publish what it has taken by then once more."""
    service.executions.patience = replace(HASTY, stop_starting_s=1000.0)
    apply(service, A)
    old = running()
    old.state = RunState.STARTING
    change = str(service.compositions.apply(composition(A2), SOON).change)

    def shown() -> str:
        stop = next(o for o in service.changes.get(change).operations if o.kind == "stop")
        return str(stop.progress)

    wait_for(lambda: "until all its tasks run" in shown())
    assert engine("edge-a").count("stop") == 0
    World.current().feed("tcp://edge-a.test:1883", "A-in", (b"1",), "sensor")
    old.state = RunState.RUNNING
    World.current().pump(checkpoint=False)
    assert over(service, change).state == "done"
    assert old.state is RunState.FINISHED
    assert len(broker("edge-a").published["A-out"]) == 1
    assert list_messages(service) == []


def test_a_job_whose_tasks_do_not_start_is_cancelled(service: Service) -> None:
    apply(service, A)
    old = running()
    old.state = RunState.STARTING
    apply(service, A2)
    assert old.state is RunState.CANCELED
    assert "not all tasks run" in list_messages(service)[0]


def test_a_stop_is_given_up_sooner_while_the_broker_of_its_sink_is_away(service: Service) -> None:
    service.executions.patience = replace(HASTY, stop_idle_s=1000.0, stop_sink_idle_s=0.01)
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, {**A2, "upgrade": "savepoint"})
    held()
    broker("edge-a").unreachable = True
    assert over(service, change).state == "done"
    broker("edge-a").unreachable = False
    assert "the broker of its sink does not answer" in list_messages(service)[0]


def test_a_stop_counts_no_time_in_which_its_site_is_silent(service: Service) -> None:
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)
    old = held()
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    engine("edge-a").unreachable = False
    engine("edge-a").let_go()
    assert over(service, change).state == "done"
    assert old.state is RunState.FINISHED


def test_a_job_that_came_back_after_its_stop_failed_gets_no_second_stop(service: Service) -> None:
    engine("edge-a").hold_savepoints = True
    change = begin_change(service, A2)
    old = held()
    engine("edge-a").unreachable = True
    wait_for(lambda: service.changes.get(change).state == "blocked")
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    with World.current().lock:  # the stop failed, its engine brought the job back and forgot it
        old.savepoints.clear()
        old.stopping = None
        engine("edge-a").held.clear()
        old.exceptions.insert(0, JobException(1, "StopFailed", "the task failed while stopping"))
    engine("edge-a").hold_savepoints = False
    engine("edge-a").unreachable = False
    feed(b"2")
    stops = engine("edge-a").count("stop")
    apply(service, A2)
    assert engine("edge-a").count("stop") == stops
    assert old.state is RunState.CANCELED
    assert running().ledger.messages == 2


@pytest.mark.parametrize(
    ("answer_was_lost", "stops"), [(False, 2), (True, 1)], ids=["request lost", "answer lost"]
)
def test_a_stop_is_asked_again_if_its_request_was_lost(
    service: Service, answer_was_lost: bool, stops: int
) -> None:
    apply(service, A)
    feed(b"1")
    lost = UnreachableError("cannot reach edge-a")
    engine("edge-a").refuse("stop", 1, lost, after=answer_was_lost)
    apply(service, A2)
    assert engine("edge-a").count("stop") == stops
    assert list_messages(service) == []
    assert running().ledger.messages == 1


def test_a_stop_that_ended_unseen_leaves_its_savepoint(service: Service) -> None:
    """The service was away when the job ended: the engine's list of checkpoints tells."""
    apply(service, A)
    feed(b"1")
    old = running()
    with World.current().lock:
        engine("edge-a").save(old, "0" * 32, "memory:/state/savepoints/A/x")
        old.stopped = True
        old.end(RunState.FINISHED)
    apply(service, A2)
    assert running().submission.state == "memory:/state/savepoints/A/x"


def test_a_stop_refused_by_the_engine_ends_in_a_cancellation(service: Service) -> None:
    apply(service, A)
    feed(b"1")
    engine("edge-a").refuse("stop", 1, EngineRefusedError("cannot stop: no savepoint folder"))
    apply(service, A2)
    assert running().ledger.messages == 1
    assert "no savepoint folder" in list_messages(service)[0]


# -- starts that take their time ----------------------------------------------------------


def test_a_start_that_took_long_is_done_once_its_source_is_connected(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.executions.patience = replace(HASTY, connect_s=0.0)
    is_connected = Event()
    monkeypatch.setattr(MemoryEngine, "is_connected", lambda *_: is_connected.is_set())
    change = service.compositions.apply(composition(A), SOON).change
    wait_for(lambda: len(engine("edge-a").running()) == 1)
    assert service.changes.get(change).state == "running"
    is_connected.set()
    assert over(service, change).state == "done"


def test_a_source_whose_broker_is_away_does_not_fail_its_start(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.executions.patience = replace(HASTY, connect_s=0.0)
    monkeypatch.setattr(MemoryEngine, "is_connected", lambda *_: False)
    change = service.compositions.apply(composition(A), SOON).change
    wait_for(lambda: len(engine("edge-a").running()) == 1)
    broker("edge-a").unreachable = True
    assert over(service, change).state == "done"


def cancel_in_vain(service: Service, monkeypatch: pytest.MonkeyPatch, limit_s: float) -> str:
    """The change that cancels A at an engine that goes on listing it: an operator hangs."""
    assert service.compositions.apply(composition(A), DONE).state == "done"
    monkeypatch.setattr(MemoryEngine, "cancel", lambda self, job_id: None)
    service.executions.patience = replace(HASTY, cancel_s=limit_s)
    stateless = composition(A2 | {"upgrade": "stateless"})
    return str(service.compositions.apply(stateless, SOON).change)


def cancel_of(service: Service, change: str) -> OperationOutcome:
    steps = service.changes.get(change).operations
    return next(step for step in steps if step.kind == "cancel")


def test_a_cancellation_says_what_it_waits_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = cancel_in_vain(service, monkeypatch, 1000.0)
    incarnation = running()
    said = "cancelling: waits until all its tasks have ended"
    wait_for(lambda: cancel_of(service, change).progress == said, said)
    incarnation.end(RunState.CANCELED)
    wait_for(lambda: service.changes.get(change).state == "done")


def test_a_cancellation_that_does_not_end_says_how_to_end_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = cancel_in_vain(service, monkeypatch, 0.05)
    wait_for(lambda: cancel_of(service, change).state == "failed")
    assert cancel_of(service, change).error == (
        "cannot cancel A: tasks of it still run after 0 s, since an operator hangs or ignores that"
        " it is interrupted; restart the engine of edge-a, then try again: its other jobs go on"
        " from their checkpoints"
    )
