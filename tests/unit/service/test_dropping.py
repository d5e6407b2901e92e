"""Queues are dropped only with consent, whoever asks and however long it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from binders.memory import World
from speck.deploy.locks import NamedLocks
from speck.errors import QueuesError, UnreachableError
from speck.model.composition import composition_of_one
from speck.model.incarnation import Session
from speck.model.observation import RunState
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.monitor.judge import JobFinding
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.service.jobs import JobOutcome
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    job,
    job_body,
    look_anew,
    reopened,
)
from tests.waiting import wait_for

DB: JsonObject = {"site": "edge-a", "topic": "A-out", "client_id": "q-db"}
DROPPING = replace(DONE, drop_queues=True)
A = job_body("A")


def feed(count: int, topic: str = "A-in") -> None:
    World.current().feed("tcp://edge-a.test:1883", topic, [b"%d" % n for n in range(count)], "s")
    World.current().pump()


def begin(service: Service, count: int = 650, *jobs: JsonObject) -> None:
    """A writes for an outside reader that reads nothing."""
    service.compositions.apply(composition(A, *jobs, outputs=[DB]), DONE)
    feed(count)
    assert len(broker("edge-a").sessions["q-db"].waiting) == count


def refused(service: Service, *jobs: JsonObject, **more: Any) -> list[JsonObject]:
    """The queues that an apply would drop; nothing is done about it."""
    changes = len(service.changes.all())
    with pytest.raises(QueuesError, match=r"without --drop-queues \(\?drop_queues=true\)") as error:
        service.compositions.apply(composition(*jobs, **more), DONE)
    assert len(service.changes.all()) == changes
    return [render(queue) for queue in error.value.queues]


def test_an_apply_without_the_output_is_refused_with_the_list(service: Service) -> None:
    begin(service)
    assert refused(service, A) == [
        {
            "reader": "q-db",
            "client_id": "q-db",
            "job_name": None,
            "site": "edge-a",
            "topic": "A-out",
            "messages": 650,
            "count": "at_most",
            "why": "its reader is outside speck",
            "text": "drops the queue of q-db at edge-a/A-out (at most 650 messages, sent since the"
            " session was made): its reader is outside speck",
        }
    ]
    assert len(broker("edge-a").take("q-db")) == 650
    dry = service.compositions.apply(composition(A), ApplyRequest(dry_run=True))
    assert [queue.messages for queue in dry.plan.queues] == [650]
    assert service.compositions.apply(composition(A), DROPPING).state == "done"
    assert "q-db" not in broker("edge-a").sessions


@pytest.mark.parametrize(
    "output",
    [
        {**DB, "client_id": "other"},
        {**DB, "topic": "B-out"},
        {**DB, "site": "cloud"},
    ],
    ids=["client id", "topic", "site"],
)
def test_an_output_that_changes_is_refused(service: Service, output: JsonObject) -> None:
    begin(service, 5)
    assert [queue["messages"] for queue in refused(service, A, outputs=[output])] == [5]
    assert len(broker("edge-a").take("q-db")) == 5


def test_a_removal_is_refused_with_the_list_and_nothing_is_half_done(service: Service) -> None:
    begin(service)
    with pytest.raises(QueuesError, match=r"(?s)cannot remove composition 'c' .* q-db"):
        service.compositions.delete("c", LIMIT_S)
    assert service.jobs.get("A").state == "running"
    dry = service.compositions.delete("c", LIMIT_S, dry_run=True)
    assert (dry.under_way, len(dry.plan.queues)) == (False, 1)
    assert service.compositions.delete("c", LIMIT_S, drop_queues=True).done
    assert broker("edge-a").sessions == {}


def test_what_was_sent_before_a_stateless_start_is_still_counted(service: Service) -> None:
    """Its sink numbers anew then, and reports only the new epoch."""
    begin(service, 7)
    service.compositions.apply(
        composition({**A, "args": ["x"], "upgrade": "stateless"}, outputs=[DB]), DONE
    )
    feed(3)
    assert [queue["messages"] for queue in refused(service, {**A, "args": ["x"]})] == [10]


def test_what_was_sent_before_a_job_came_back_is_still_counted(service: Service) -> None:
    """It numbers anew after a failure: its state does not say what it has sent since."""
    begin(service, 7)
    for engine_job_id in list(engine("edge-a").jobs):
        engine("edge-a").fail(engine_job_id, "no memory")
    look_anew(service)
    repair = service.repairs.repair("c")
    assert repair is not None
    assert repair.over.wait(LIMIT_S)
    feed(3)
    assert [queue["messages"] for queue in refused(service, A)] == [10]


def test_what_was_sent_before_an_engine_restarted_the_job_is_still_counted(
    service: Service,
) -> None:
    """Each start of a sink begins a new epoch, and polls show only the last one."""
    begin(service, 7)
    look_anew(service)
    service.watch.poll()
    ((sink, sent),) = broker("edge-a").sent.items()
    broker("edge-a").sent[sink] = replace(sent, epoch=sent.epoch + 5, number=3)

    def is_noted() -> bool:
        look_anew(service)
        service.watch.poll()
        return any(session.owed for session in service.records.sessions.of_scope("c"))

    wait_for(is_noted)
    assert [queue["messages"] for queue in refused(service, A)] == [10]


def test_a_queue_is_not_forgotten_if_an_engine_restarted_the_job_while_the_service_was_down(
    service: Service,
) -> None:
    """Nobody knows the last number of the former epoch then."""
    begin(service, 7)
    poll_until_known(service)
    again = reopened(service)
    restart_sink(again, number=0)
    wait_for(lambda: poll(again) and outside_session(again).fed_outside)
    ((messages, count),) = {(q["messages"], q["count"]) for q in refused(again, A)}
    assert (messages, count) == (None, "unknown")
    again.close()


def test_a_start_by_speck_is_no_unseen_epoch_after_the_service_was_down(service: Service) -> None:
    begin(service, 7)
    poll_until_known(service)
    service.compositions.apply(composition({**A, "args": ["x"]}, outputs=[DB]), DONE)
    again = reopened(service)
    feed(3)
    for _ in range(3):
        poll(again)
    assert [queue["messages"] for queue in refused(again, {**A, "args": ["x"]})] == [10]
    again.close()


class BusyLocks(NamedLocks):
    """Whoever wants a lock waits for another one, who writes to the session."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    @contextmanager
    def __getitem__(self, name: str) -> Iterator[None]:
        with super().__getitem__(name):
            records = self._service.records
            changed = replace(outside_session(self._service), undrained="as another one says")
            records.write(records.sessions.put("c", changed))
            yield


def test_an_epoch_is_added_to_what_others_write_to_the_session(service: Service) -> None:
    begin(service, 7)
    poll_until_known(service)
    service.changes.session_locks.writing = BusyLocks(service)
    restart_sink(service, number=0)
    wait_for(lambda: poll(service) and outside_session(service).owed)
    assert outside_session(service).undrained


@pytest.mark.parametrize("what", ["site", "composition"])
def test_what_is_forgotten_is_not_written_again_by_others(service: Service, what: str) -> None:
    """Neither before it is read nor between that and the write."""
    begin(service, 7)
    held, locks = list[str](), service.changes.session_locks

    class Locks(NamedLocks):
        def __getitem__(self, name: str) -> AbstractContextManager[Any]:
            held.append(name)
            return super().__getitem__(name)

    locks.writing = Locks()
    reader = outside_session(service).client_id
    if what == "site":
        service.forgetting.site("edge-a", force=True)
    else:
        service.forgetting.composition("c", force=True)
    assert reader in held
    assert service.records.sessions.all() == []


def poll(service: Service) -> bool:
    look_anew(service)
    service.watch.poll()
    return True


def poll_until_known(service: Service) -> None:
    """Until the sink's epoch is stored with the session of the outside reader."""
    wait_for(lambda: poll(service) and outside_session(service).running)


def outside_session(service: Service) -> Session:
    (session,) = (each for each in service.records.sessions.of_scope("c") if each.job_name is None)
    return session


def restart_sink(service: Service, number: int) -> None:
    """The engine has started the sink again, which numbers anew."""
    ((sink, sent),) = broker("edge-a").sent.items()
    broker("edge-a").sent[sink] = replace(sent, epoch=sent.epoch + 5, number=number)


def test_what_a_producer_sent_that_has_left_is_still_counted(service: Service) -> None:
    begin(service, 7, job_body("B"))
    moved = {**A, "sink_topic": "elsewhere"}
    service.compositions.apply(composition(moved, job_body("B"), outputs=[DB]), DONE)
    assert [q["messages"] for q in refused(service, moved, job_body("B"))] == [7]
    service.compositions.apply(composition(job_body("B"), outputs=[DB]), replace(DONE, force=True))
    assert [q["messages"] for q in refused(service, job_body("B"))] == [7]
    assert len(broker("edge-a").take("q-db")) == 7


def test_what_an_outside_reader_has_kept_before_speck_knew_it_is_not_dropped(
    service: Service,
) -> None:
    broker("edge-a").subscribe("q-db", "A-out")
    World.current().feed("tcp://edge-a.test:1883", "A-out", [b"old"])
    begin_after = composition(A, outputs=[DB])
    service.compositions.apply(begin_after, DONE)
    assert broker("edge-a").take("q-db") == [b"old"]


def test_one_of_several_jobs_that_is_stopped_is_not_removed_with_its_queue(
    service: Service,
) -> None:
    chain = [job_body("P", sink_topic="x"), job_body("Q", source_topic="x")]
    service.compositions.apply(composition(*chain), DONE)
    stopped = [chain[0], {**chain[1], "state": "stopped"}]
    service.compositions.apply(composition(*stopped), DONE)
    feed(650, "P-in")
    (queue,) = refused(service, chain[0])
    assert (queue["job_name"], queue["messages"], queue["count"]) == ("Q", 650, "about")
    elsewhere = {**stopped[1], "source_topic": "y"}
    assert [q["messages"] for q in refused(service, chain[0], elsewhere)] == [650]
    service.compositions.apply(composition(*chain), DONE)
    World.current().pump()
    assert service.compositions.apply(composition(chain[0]), DONE).state == "done"


def test_a_job_posted_alone_asks_too(service: Service) -> None:
    service.jobs.post(job("A", state="stopped"), LIMIT_S)
    with pytest.raises(QueuesError, match=r"(?s)cannot remove job 'A' .*drops the queue of A"):
        service.jobs.delete("A", LIMIT_S)
    with pytest.raises(QueuesError):
        service.jobs.put("A", job("A", source_topic="other", state="stopped"), LIMIT_S)
    with pytest.raises(QueuesError):  # a composition that takes it over reads another topic
        service.compositions.apply(
            composition(job_body("A", source_topic="other", state="stopped")),
            replace(DONE, adopt=True),
        )
    assert service.jobs.delete("A", LIMIT_S, drop_queues=True) == JobOutcome()


@pytest.mark.parametrize(
    "finding",
    [JobFinding(stall="no checkpoint"), JobFinding(failures=3, is_restarted=True)],
)
def test_a_job_that_takes_nothing_is_not_drained_when_it_is_adopted(
    service: Service, finding: JobFinding
) -> None:
    """The watch knows it as a job posted alone, as its engine may list it running between two
    failures."""
    alone = service.jobs.post(job("A"), LIMIT_S).job
    found = replace(finding, engine_job_id=alone.engine_job_id)
    service.board.publish({(composition_of_one("A"), "A"): found}, {}, {})
    elsewhere = composition(job_body("A", source_topic="other"))
    with pytest.raises(QueuesError, match="the job takes nothing"):
        service.compositions.apply(elsewhere, replace(DONE, adopt=True))


def test_a_job_that_was_started_again_several_times_is_drained_if_it_runs(service: Service) -> None:
    """Its engine has died several times: it is shown as restarting for a while."""
    begin(service, 0, job_body("B", source_topic="A-out"))
    running = service.records.incarnations.get("c", "B")
    assert running is not None
    found = JobFinding(running.engine_job_id, failure="its engine has ended", failures=3)
    service.board.publish({("c", "B"): found}, {}, {})
    assert service.jobs.get("B").state == "restarting"
    feed(5)
    service.compositions.apply(composition(A, outputs=[DB]), replace(DONE, force=True))
    assert not any(broker("edge-a").abandoned.values())


def test_a_queue_whose_release_was_refused_is_asked_about_again(service: Service) -> None:
    """Its producer has left the link meanwhile, and its numbers are cleared."""
    begin(service, 0, job_body("B", source_topic="A-out"))
    running = service.records.incarnations.get("c", "B")
    assert running is not None
    engine("edge-a").jobs[running.engine_job_id].state = RunState.RESTARTING

    def keep_coming(kind: str, subject: str) -> None:
        if kind == "stop" and subject != running.engine_job_id:
            feed(3)

    engine("edge-a").before = keep_coming
    rest = composition({**A, "sink_topic": "elsewhere"}, outputs=[DB])
    change = service.compositions.apply(rest, replace(DONE, force=True)).change
    engine("edge-a").before = None
    error = service.changes.get(change).error
    assert error is not None and "and nobody takes them; the session is kept" in error
    elsewhere = {**A, "sink_topic": "elsewhere"}
    assert [q["job_name"] for q in refused(service, elsewhere, outputs=[DB])] == ["B"]


def test_what_is_refused_supersedes_nothing(service: Service) -> None:
    begin(service, 5)
    engine("cloud").refuse("submit", 10**6, UnreachableError("cannot reach cloud"))
    more = composition(A, job_body("B", "cloud"), outputs=[DB])
    blocked = service.compositions.apply(more, ApplyRequest()).change
    wait_for(lambda: service.changes.get(blocked).state == "blocked")
    refused(service, A)
    with pytest.raises(QueuesError):
        service.compositions.delete("c", LIMIT_S)
    assert service.changes.get(blocked).state == "blocked"


def test_a_release_looks_again(service: Service) -> None:
    """Nothing waited when the plan was made; something comes before the session ends."""
    begin(service, 0)
    engine("edge-a").before = lambda kind, subject: feed(1) if kind == "stop" else None
    answer = service.compositions.delete("c", LIMIT_S)
    engine("edge-a").before = None
    change = service.changes.get(answer.change)
    assert change.state == "failed"
    assert change.error == (
        "cannot end the session of q-db on edge-a/A-out: at most 1 messages wait in it, and"
        " nobody takes them; the session is kept. Use --drop-queues to drop them"
    )
    assert len(broker("edge-a").sessions["q-db"].waiting) == 1
    with pytest.raises(QueuesError):
        service.compositions.delete("c", LIMIT_S)
    assert service.compositions.delete("c", LIMIT_S, drop_queues=True).done


def test_a_change_with_consent_goes_on_with_it_after_a_restart(service: Service) -> None:
    begin(service, 5)
    broker("edge-a").refuse("release", 10**6, UnreachableError("silent"))
    change = service.compositions.delete("c", 0, drop_queues=True).change
    wait_for(lambda: service.changes.get(change).state == "blocked")
    broker("edge-a").forgive()
    again = reopened(service)
    try:
        wait_for(lambda: again.changes.get(change).state == "done")
        assert broker("edge-a").sessions == {}
    finally:
        again.close()


def test_a_rollback_asks(service: Service) -> None:
    service.compositions.apply(composition(A), DONE)
    begin(service, 5)
    with pytest.raises(QueuesError):
        service.compositions.rollback("c", 1, DONE)
    assert service.compositions.rollback("c", 1, DROPPING).state == "done"


def test_a_repair_drops_nothing(service: Service) -> None:
    """The revision does not want the reader any more, but its release has failed."""
    begin(service, 0)
    broker("edge-a").before = lambda kind, subject: feed(1) if kind == "release" else None
    broker("edge-a").refuse("release", 1, QueuesError("no", []))
    change = service.compositions.apply(composition(A), DONE).change
    broker("edge-a").before = None
    assert service.changes.get(change).state == "failed"
    feed(2)
    for engine_job_id in list(engine("edge-a").jobs):
        engine("edge-a").fail(engine_job_id, "no memory")
    look_anew(service)
    repair = service.repairs.repair("c")
    assert repair is not None
    assert repair.over.wait(LIMIT_S)
    assert repair.change.state == "done", repair.change.error
    assert service.jobs.get("A").state == "running"
    assert "q-db" in broker("edge-a").sessions
    messages = [event.message for event in service.records.events.after()]
    assert any("keeps the queue of q-db at edge-a/A-out" in message for message in messages)
