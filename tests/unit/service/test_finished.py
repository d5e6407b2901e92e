"""Jobs whose sources end: they are finished, and run once more only when they are changed."""

from __future__ import annotations

from dataclasses import replace

from binders.memory import World
from binders.memory.slots import MemoryJob
from speck.errors import TransientError
from speck.model.change import ChangeState
from speck.model.observation import RunState
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from tests.memory_fog import HASTY
from tests.service_helpers import DONE, composition, engine, look_anew, reopened
from tests.service_helpers import job_body as job
from tests.waiting import wait_for

A = job("A")
A2 = job("A", args=["--2"])


def apply(service: Service, *jobs: JsonObject) -> None:
    assert service.compositions.apply(composition(*jobs), DONE).state == "done"


def finish(service: Service, name: str = "A", site: str = "edge-a") -> None:
    """Let a job's sources end, and the watch see it."""
    incarnation = service.records.incarnations.get("c", name)
    assert incarnation is not None
    engine(site).finish(incarnation.engine_job_id)
    watch(service)


def watch(service: Service) -> None:
    look_anew(service)
    service.watch.poll()
    wait_for(lambda: not service.watch.repairs.scopes and not service.changes.all_under_way())


def state(service: Service, name: str = "A") -> str:
    look_anew(service)
    return str(service.jobs.get(name).state)


def submitted(name: str = "A", site: str = "edge-a") -> list[MemoryJob]:
    return [each for each in engine(site).jobs.values() if each.submission.job_name == name]


def list_events(service: Service) -> list[str]:
    return [e.message for e in service.records.events.after() if e.kind in ("job", "drift")]


def test_a_job_whose_sources_end_is_finished_and_left_so(service: Service) -> None:
    apply(service, A)
    finish(service)
    for _ in range(3):
        watch(service)

    assert state(service) == "finished"
    assert len(submitted()) == 1
    events = [message for message in list_events(service) if "finished" in message]
    assert events == ["A has finished at edge-a: its sources have ended"]
    assert service.composition_views.drift("c") == []
    apply(service, A)
    assert len(submitted()) == 1


def test_it_stays_finished_when_its_engine_and_the_service_have_forgotten_it(
    service: Service,
) -> None:
    apply(service, A)
    finish(service)
    engine("edge-a").forget_jobs()

    again = reopened(service)
    watch(again)
    assert state(again) == "finished"
    apply(again, A)
    assert submitted() == []
    again.close()


def test_it_may_finish_before_it_is_seen_running(service: Service) -> None:
    engine("edge-a").bounded.add("A")
    apply(service, A)
    watch(service)

    assert state(service) == "finished"
    assert len(submitted()) == 1


def test_it_may_finish_while_the_service_is_away(service: Service) -> None:
    apply(service, A)
    incarnation = service.records.incarnations.get("c", "A")
    assert incarnation is not None
    engine("edge-a").finish(incarnation.engine_job_id)

    again = reopened(service)
    apply(again, A, job("B", "cloud"))
    assert state(again) == "finished"
    assert len(submitted()) == 1
    again.close()


def test_it_runs_once_more_from_its_beginning_when_it_is_changed(service: Service) -> None:
    apply(service, A)
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1"], "sensor")
    finish(service)
    plan = service.compositions.apply(composition(A2), ApplyRequest(dry_run=True)).plan
    assert plan.jobs[0].reason == ("args changed; had finished: runs once more, from its beginning")
    apply(service, A2)

    assert state(service) == "running"
    assert [each.submission.state for each in submitted()] == [None, None]
    finish(service)
    assert state(service) == "finished"


def test_a_change_that_cannot_start_leaves_no_state_to_look_for(service: Service) -> None:
    apply(service, A)
    finish(service)
    engine("edge-a").crashing["A"] = "no such sensor"
    body = service.compositions.apply(composition(A2), DONE)
    assert body.state == "failed"
    assert state(service) == "failed"

    engine("edge-a").crashing.clear()
    apply(service, A2)
    assert state(service) == "running"


def test_a_stop_at_the_engine_is_drift_and_goes_on_from_its_savepoint(service: Service) -> None:
    apply(service, A)
    incarnation = service.records.incarnations.get("c", "A")
    assert incarnation is not None
    service.connections.engine("edge-a").stop(incarnation.engine_job_id, "shared:/x", "0" * 32)
    watch(service)

    assert state(service) == "running"
    assert submitted()[-1].submission.state == f"shared:/x/{'0' * 32}"


def test_while_the_engine_does_not_say_nothing_is_started(service: Service) -> None:
    apply(service, A)
    incarnation = service.records.incarnations.get("c", "A")
    assert incarnation is not None
    engine("edge-a").finish(incarnation.engine_job_id)
    engine("edge-a").refuse("has_finished", 2, TransientError("cannot answer now"))
    watch(service)
    assert len(submitted()) == 1
    watch(service)
    watch(service)
    assert state(service) == "finished"


def test_a_job_that_ends_while_it_is_stopped_has_finished(service: Service) -> None:
    service.executions.patience = replace(HASTY, stop_s=5)
    apply(service, A)
    engine("edge-a").hold_savepoints = True
    change = service.compositions.apply(composition(A2), ApplyRequest(wait_s=0.05)).change
    wait_for(lambda: bool(engine("edge-a").held))
    old = engine("edge-a").held[0][0]
    with World.current().lock:
        engine("edge-a").held.clear()
        engine("edge-a").finish(old.id)
    wait_for(lambda: not service.changes.all_under_way())

    assert service.changes.get(change).state == "done"
    assert old.state is RunState.FINISHED
    assert submitted()[-1].submission.state is None


def test_its_reader_drains_and_leaves_and_it_is_removed(service: Service) -> None:
    reader = job("B", source_topic="A-out", sink_topic="B-out")
    apply(service, A, reader)
    World.current().feed("tcp://edge-a.test:1883", "A-in", [b"1", b"2"], "sensor")
    finish(service)
    apply(service, A, job("B", source_topic="B-in", sink_topic="B-out"))
    assert state(service) == "finished"
    _, removal = service.compositions.remove("c", drop_queues=True)
    wait_for(lambda: removal.change.state.over)
    assert removal.change.state is ChangeState.DONE


def test_neighbours_that_change_at_one_record_do_not_start_it_again(service: Service) -> None:
    apply(service, A, job("B", source_topic="A-out"), job("C", source_topic="A-out"))
    finish(service)
    apply(service, A, job("B", source_topic="B-in"), job("C", source_topic="C-in"))
    assert len(submitted()) == 1
