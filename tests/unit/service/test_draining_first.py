"""With consent to drop queues, what can be drained still is, and what is dropped is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from binders.memory import World
from speck.clock import SystemClock
from speck.errors import EngineRefusedError, QueuesError, UnreachableError
from speck.model.change import ChangeReport
from speck.model.values import JsonObject
from speck.service import Service
from tests.memory_fog import FAST, HASTY, MemoryKeeper, memory_service, site_body
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    job_body,
    look_anew,
    reopened,
)
from tests.waiting import wait_for

SHORT_S = 0.3
PATIENT = replace(HASTY, drain_idle_s=3600.0)
DROPPING = replace(DONE, drop_queues=True, force=True)
P = job_body("P", sink_topic="x")
Q = job_body("Q", "cloud", source_site="edge-a", source_topic="x", sink_topic="y")
DB: JsonObject = {"site": "cloud", "topic": "y", "client_id": "q-db"}


def feed(count: int, *, pumps: bool = True) -> None:
    payloads = [b"%d" % n for n in range(count)]
    World.current().feed("tcp://edge-a.test:1883", "P-in", payloads, "s")
    if pumps:
        World.current().pump()


def begin(service: Service) -> None:
    """P writes to Q, which writes for an outside reader that reads nothing."""
    service.compositions.apply(composition(P, Q, outputs=[DB]), DONE)


def destroy(service: Service, limit_s: float | None = SHORT_S) -> ChangeReport:
    answer = service.compositions.delete("c", LIMIT_S, drop_queues=True, drain_limit_s=limit_s)
    newest = service.changes.all("c")[0].id
    wait_for(lambda: not service.changes.all_under_way())
    change = service.changes.get(newest)
    assert answer.done == (change.state == "done")
    return change


def texts(change: ChangeReport) -> list[str]:
    return [queue.text for queue in change.dropped]


def messages(service: Service) -> list[str]:
    return [event.message for event in service.records.events.after()]


def test_running_jobs_are_drained_and_only_the_outside_queue_is_dropped(service: Service) -> None:
    begin(service)
    feed(7)
    change = destroy(service)
    assert change.state == "done"
    kinds = [o.kind for o in change.operations]
    assert kinds.count("drain") == 1
    assert texts(change) == [
        "dropped the queue of q-db at cloud/y (at most 7 messages, sent since the session was"
        " made): its reader is outside speck"
    ]
    assert texts(change)[0] in messages(service)
    assert [len(queue) for queue in broker("edge-a").abandoned.values() if queue] == []
    assert broker("cloud").sessions == {}


def test_the_release_counts_at_its_moment(service: Service) -> None:
    """What comes after the plan, and what is drained by then, is counted too."""
    begin(service)
    feed(2)
    dry = service.compositions.delete("c", LIMIT_S, drop_queues=True, dry_run=True).plan
    assert [queue.messages for queue in dry.queues] == [2]
    engine("edge-a").before = lambda kind, subject: feed(3) if kind == "stop" else None
    change = destroy(service)
    engine("edge-a").before = None
    assert [queue.messages for queue in change.dropped] == [5]


def test_a_job_that_hangs_is_dropped_after_the_limit(service: Service) -> None:
    begin(service)
    del broker("cloud").sessions["q-db"]  # Q can pass nothing on
    feed(5)
    change = destroy(service)
    assert change.state == "done", change.error
    (queue,) = [q for q in change.dropped if q.job_name == "Q"]
    assert queue.messages == 5
    assert queue.text == (
        "dropped the queue of Q at edge-a/x (about 5 messages):"
        " the job has not taken all of it in 0.3 s"
    )
    assert any("given up, and what is left may be dropped" in m for m in messages(service))
    assert broker("edge-a").sessions == {}
    assert not engine("cloud").running()


class Later(SystemClock):
    """The clock of a service that was down for two hours."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


def test_the_limit_of_a_drain_goes_on_after_a_restart(service: Service) -> None:
    begin(service)
    del broker("cloud").sessions["q-db"]  # Q can pass nothing on
    feed(5)
    answer = service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=3600)
    change = answer.change

    def has_begun(name: str) -> bool:
        operations = service.changes.get(change).operations
        return any(o.kind == "drain" and o.job_name == name and o.started for o in operations)

    wait_for(lambda: has_begun("Q"))
    service.close()
    again = Service(service.config, Later(), bounds=FAST, patience=PATIENT)
    try:
        wait_for(lambda: not again.changes.all_under_way())
        ended = again.changes.get(change)
        assert ended.state == "done", ended.error
        (queue,) = [q for q in ended.dropped if q.job_name == "Q"]
        assert queue.text.endswith("the job has not taken all of it in 3600 s")
    finally:
        again.close()


def test_a_rewired_reader_that_hangs_leaves_its_queue_behind(service: Service) -> None:
    begin(service)
    del broker("cloud").sessions["q-db"]
    feed(5)
    moved = [{**P, "sink_topic": "x2"}, {**Q, "source_topic": "x2"}]
    request = replace(DROPPING, drain_limit_s=SHORT_S)
    body = service.compositions.apply(composition(*moved, outputs=[DB]), request)
    change = service.changes.get(body.change)
    assert change.state == "done", change.error
    assert [(q.job_name, q.topic, q.messages) for q in change.dropped] == [("Q", "x", 5)]
    assert service.composition_views.plan("c").operations == ()


def test_without_a_limit_of_its_own_a_request_has_that_of_the_service(service: Service) -> None:
    begin(service)
    dry = service.compositions.delete("c", LIMIT_S, drop_queues=True, dry_run=True).plan
    assert dry.drain_limit_s == service.config.drain_limit_s == 300
    assert "P left it; what it has not taken in 300 s is dropped" in dry.text
    plain = service.compositions.delete("c", LIMIT_S, dry_run=True).plan
    assert plain.drain_limit_s is None
    assert "is dropped" not in plain.text


def test_with_a_limit_of_zero_all_readers_leave_at_once(service: Service) -> None:
    begin(service)
    del broker("cloud").sessions["q-db"]
    feed(4)
    change = destroy(service, 0)
    assert {o.kind for o in change.operations} == {"cancel", "release", "forget"}
    assert [q.messages for q in change.dropped if q.job_name == "Q"] == [4]


# -- changes that end early ---------------------------------------------------------------


def block_releases(service: Service) -> str:
    """A removal with consent whose release of the outside reader's session is blocked."""
    begin(service)
    feed(3)
    broker("cloud").refuse("release", 10**6, UnreachableError("silent"))
    answer = service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=LIMIT_S)
    change = str(answer.change)
    wait_for(lambda: service.changes.get(change).state == "blocked")
    return change


def test_the_consent_of_a_cancelled_change_is_not_that_of_the_next(service: Service) -> None:
    change = block_releases(service)
    service.runner.cancel(change)
    wait_for(lambda: not service.changes.all_under_way())
    broker("cloud").forgive()
    with pytest.raises(QueuesError, match="q-db"):
        service.compositions.delete("c", LIMIT_S)
    assert "q-db" in broker("cloud").sessions
    assert service.compositions.delete("c", LIMIT_S, drop_queues=True).done


def test_what_supersedes_a_change_with_consent_asks_for_its_own(service: Service) -> None:
    change = block_releases(service)
    with pytest.raises(QueuesError, match="q-db"):
        service.compositions.delete("c", LIMIT_S)
    assert service.changes.get(change).state == "blocked"
    broker("cloud").forgive()
    wait_for(lambda: service.changes.get(change).state == "done")
    assert [(q.reader, q.messages) for q in service.changes.get(change).dropped] == [("q-db", 3)]


def test_a_change_without_consent_does_not_get_it_by_a_restart(service: Service) -> None:
    """The service is stopped between the question and the release; something comes meanwhile."""
    begin(service)
    engine("cloud").refuse("stop", 10**6, UnreachableError("silent"))
    change = service.compositions.delete("c", 0).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    World.current().feed("tcp://edge-a.test:1883", "x", [b"late"])
    World.current().pump()
    again = reopened(service)
    try:
        engine("cloud").forgive()
        wait_for(lambda: not again.changes.all_under_way())
        ended = again.changes.get(change)
        assert (ended.state, ended.dropped) == ("failed", ())
        assert "cannot end the session of q-db" in ended.error
        assert len(broker("cloud").sessions["q-db"].waiting) == 1
    finally:
        again.close()


# -- sites that do not answer -------------------------------------------------------------


def test_a_broker_that_is_away_does_not_keep_a_composition(service: Service) -> None:
    begin(service)
    feed(3)
    broker("cloud").unreachable = True
    look_anew(service)
    change = destroy(service)
    assert change.state == "done", change.error
    (queue,) = change.dropped
    assert (queue.reader, queue.messages, queue.count) == ("q-db", None, "unknown")
    assert service.jobs.all() == []
    assert "q-db" in broker("cloud").sessions
    assert any("is ended when its broker answers" in each for each in messages(service))
    broker("cloud").unreachable = False

    def has_ended() -> bool:
        look_anew(service)
        service.watch.poll()
        return "q-db" not in broker("cloud").sessions and not service.records.sessions.of_scope("c")

    wait_for(has_ended)


def test_a_broker_that_goes_away_meanwhile_ends_the_drain_after_its_limit(
    service: Service,
) -> None:
    begin(service)
    feed(3)

    def leave(kind: str, subject: str) -> None:
        if kind == "stop":
            broker("edge-a").unreachable = True

    engine("edge-a").before = leave
    change = destroy(service)
    assert change.state == "done", change.error
    by_reader = {queue.reader: queue.messages for queue in change.dropped}
    assert by_reader["Q"] is None
    assert service.jobs.all() == []
    service.sites.delete("edge-a")
    assert service.records.sessions.of_scope("c") == []


def test_an_engine_that_is_away_keeps_only_its_own_jobs(service: Service) -> None:
    """Q is drained without waiting for P, whose engine does not answer."""
    begin(service)
    feed(3)
    engine("edge-a").unreachable = True
    look_anew(service)
    answer = service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=SHORT_S)
    change = answer.change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    wait_for(lambda: not engine("cloud").running())
    states = {(o.kind, o.job_name): o.state for o in service.changes.get(change).operations}
    assert states["forget", "Q"] == "done"
    assert [
        s for (kind, name), s in states.items() if kind in ("stop", "cancel") and name == "P"
    ] == ["blocked"]
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")


def test_what_comes_after_a_drain_that_did_not_wait_is_named(service: Service) -> None:
    """P goes on while its engine does not answer to the service."""
    begin(service)
    feed(3)
    engine("edge-a").unreachable = True
    look_anew(service)

    def come_late(kind: str, subject: str) -> None:
        if kind in ("stop", "cancel"):
            engine("cloud").before = None
            World.current().feed("tcp://edge-a.test:1883", "P-in", [b"7", b"8"])
            for job in engine("edge-a").running():
                job.work()

    engine("cloud").before = come_late
    change = service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=SHORT_S).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    wait_for(lambda: not engine("cloud").running())
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")
    abandoned = broker("edge-a").abandoned
    told = {q.client_id: q.messages for q in service.changes.get(change).dropped}
    reader = next(client for client in abandoned if "-Q-" in client)
    assert told[reader] == len(abandoned[reader])


def test_an_engine_that_goes_away_meanwhile_keeps_only_its_own_jobs(service: Service) -> None:
    begin(service)
    feed(3)

    def leave(kind: str, subject: str) -> None:
        if kind == "save_progress" or kind == "stop":
            engine("edge-a").unreachable = True

    engine("edge-a").before = leave
    answer = service.compositions.delete("c", 0, drop_queues=True, drain_limit_s=SHORT_S)
    change = answer.change
    wait_for(lambda: not engine("cloud").running())
    wait_for(lambda: service.changes.get(change).state == "blocked")
    operations = service.changes.get(change).operations
    assert [o.job_name for o in operations if o.kind == "forget" and o.state == "done"] == ["Q"]
    engine("edge-a").before = None
    engine("edge-a").unreachable = False
    wait_for(lambda: service.changes.get(change).state == "done")
    assert texts(service.changes.get(change))


# -- what has to be read first ------------------------------------------------------------


def test_a_lost_job_reads_first_what_waits_for_it(tmp_path: Path) -> None:
    """As without consent: only what nobody can take is dropped."""
    sites = [site_body("edge-a"), site_body("cloud")]
    with memory_service(tmp_path, sites, keeper=MemoryKeeper(), apart=False) as service:
        begin(service)
        feed(3)
        engine("cloud").forget_jobs()
        look_anew(service)
        feed(2)
        change = destroy(service)
        assert change.state == "done", change.error
        assert [(q.reader, q.messages) for q in change.dropped] == [("q-db", 5)]


def test_a_job_that_cannot_be_started_to_read_is_dropped_with_its_queue(service: Service) -> None:
    begin(service)
    feed(3)
    engine("cloud").forget_jobs()
    look_anew(service)
    feed(2)
    engine("cloud").refuse("submit", 100, EngineRefusedError("no such class"))
    change = destroy(service)
    assert change.state == "done", change.error
    dropped = {q.reader: q.messages for q in change.dropped}
    assert dropped == {"q-db": 3, "Q": 2}
    assert service.jobs.all() == []
