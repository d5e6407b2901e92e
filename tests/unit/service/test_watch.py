"""The watch over memory sites: its events, its repairs, and the jobs it leaves alone."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from binders.memory import World
from binders.memory.slots import MemoryJob
from speck.binding import EngineEnd, JobException
from speck.errors import EngineRefusedError, UnreachableError
from speck.model.composition import composition_of_one
from speck.model.incarnation import StartState
from speck.model.job_state import JobState
from speck.model.observation import RunState
from speck.monitor import failure_causes
from speck.monitor.health_events import ASKED_AGAIN_S, CALM_S
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.store.desired_state import DesiredJobs
from tests.service_helpers import (
    DONE,
    broker,
    composition,
    engine,
    job,
    job_body,
    look_anew,
)
from tests.waiting import wait_for
from tests.watching import Watched, deploy, incarnation

SITES = ("edge-a", "edge-b", "cloud")


def test_what_runs_is_left_alone_and_makes_no_event(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))

    assert watched.repairs == []
    assert watched.events("job") == watched.events("drift") == []


def test_a_round_asks_each_site_once_and_a_reader_of_states_nothing(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    before = {site: Counter(kind for kind, _ in engine(site).calls) for site in SITES}
    numbers = {site: broker(site).count("view") for site in SITES}
    watched.time.passed += 5
    watched.watch.poll()
    for _ in range(3):
        assert {job.state for job in watched.service.jobs.all()} == {"running"}
        assert watched.service.sites.all(state="up") == watched.service.sites.all()
    for site in SITES:
        asked = Counter(kind for kind, _ in engine(site).calls) - before[site]
        assert asked["view"] == 1
        assert asked["checkpointing"] <= 1
        assert broker(site).count("view") == numbers[site] + 1


@pytest.mark.parametrize("seed", range(4))
def test_users_are_shown_the_states_by_which_the_watch_repairs(watched: Watched, seed: int) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"), drift="report")
    chance = Random(seed)
    for _ in range(12):
        pool = engine(chance.choice(("edge-a", "cloud")))
        jobs = list(pool.jobs.values())
        if chance.random() < 0.3:
            pool.unreachable = not pool.unreachable
        elif jobs and chance.random() < 0.8:
            jobs[0].state = chance.choice(list(RunState))
        else:
            pool.forget_jobs()
        watched.look(chance.choice((1.0, 20.0)))
        for key, memory in watched.watch._memory.jobs.items():
            (shown,) = watched.service.states.of({}, key[0], None, [key[1]])
            assert shown.status.momentary is memory.state
            problem = None if memory.state is JobState.RUNNING else shown.status.state
            assert problem in (None, memory.state, JobState.RESTARTING)


def test_a_job_that_failed_is_repaired_and_the_others_are_left(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").fail(incarnation(watched, "A"), "no such sensor")

    watched.look()

    assert watched.repairs == [("c", frozenset({"B"}))]
    assert watched.events("job") == ["A has failed at edge-a: no such sensor; it is started again"]
    assert watched.job("A").state == "failed"
    assert watched.job("A").error == "no such sensor"


METASPACE = "the engine was restarted: its JVM ran out of memory: OutOfMemoryError: Metaspace"


def test_a_job_that_its_engine_has_lost_says_how_that_ended(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B"))
    engine("edge-a").forget_jobs()
    engine("edge-a").last_end = EngineEnd(watched.time.now_ms(), METASPACE)

    watched.look()

    lost = "is lost: the engine of edge-a answers and does not know it"
    wanted = [f"{name} {lost}: {METASPACE}" for name in ("A", "B")]
    assert watched.events("job") == wanted
    assert watched.job("A").state == "lost"
    assert watched.job("A").error == METASPACE
    assert engine("edge-a").count("last_end") == 1


def test_a_job_that_lost_its_worker_says_how_that_ended(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    failure = JobException(
        watched.time.now_ms(), "Lost", "", reason="Lost: the worker has gone", transient=True
    )
    running = engine("edge-a").running()[0]
    running.state = RunState.RESTARTING
    running.exceptions.insert(0, failure)
    before = EngineEnd(failure.at_ms - 1_000_000, "an older end")
    for end, expected in (
        (before, failure.reason),
        (EngineEnd(failure.at_ms - 2000, METASPACE), f"{failure.reason}; {METASPACE}"),
    ):
        engine("edge-a").last_end = end
        watched.look(20.0)
        assert watched.job("A").error == expected


@pytest.mark.parametrize("call", ["last_end", "exceptions"])
def test_the_watch_does_not_wait_for_an_engine_that_is_slow_to_say_why(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(failure_causes, "WITHIN_S", 0.01)
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    goes_on = threading.Event()

    def hang(kind: str, subject: str) -> None:
        if kind == call:
            assert goes_on.wait(60)

    engine("edge-a").before = hang
    try:
        if call == "last_end":
            engine("edge-a").forget_jobs()
        else:
            engine("edge-a").fail(incarnation(watched, "A"), METASPACE)
        engine("edge-a").last_end = EngineEnd(watched.time.now_ms(), METASPACE)
        watched.look()
        (first,) = watched.events("job")
        assert first.startswith(("A is lost", "A has failed")) and METASPACE not in first
        engine("cloud").fail(incarnation(watched, "B"), "no such sensor")
        watched.look()
        assert len(watched.events("job")) == 2, "the watch goes on meanwhile"
        assert engine("edge-a").count(call) == 0
    finally:
        goes_on.set()

    def is_explained() -> bool:
        watched.look()
        return f"A had failed or was lost: {METASPACE}" in watched.events("job")

    wait_for(is_explained, limit_s=30)
    assert watched.job("A").error == METASPACE
    assert engine("edge-a").count(call) == 1


def test_a_cause_that_an_engine_is_slow_to_tell_is_an_event_once(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_causes, "WITHIN_S", 0.0)
    deploy(watched, job_body("A"))
    pool, told = engine("edge-a"), f"A had failed or was lost: {METASPACE}"
    looked = threading.Semaphore(0)

    def be_slow(kind: str, subject: str) -> None:
        if kind == "exceptions":
            assert looked.acquire(timeout=60)

    pool.before = be_slow
    pool.crash(incarnation(watched, "A"), METASPACE)
    for answers in range(1, 4):
        watched.look(after=ASKED_AGAIN_S)
        looked.release()

        def has_answered(answers: int = answers) -> bool:
            watched.look(after=0.0)
            return pool.count("exceptions") == answers and told in watched.events("job")

        wait_for(has_answered, limit_s=30)
    assert watched.events("job").count(told) == 1


@pytest.mark.parametrize("call", ["last_end", "exceptions"])
def test_a_binder_that_fails_to_say_why_hides_no_failure(watched: Watched, call: str) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))

    def break_down(kind: str, subject: str) -> None:
        if kind == call:
            raise RuntimeError("a fault of the binder")

    engine("edge-a").before = break_down
    if call == "last_end":
        engine("edge-a").forget_jobs()
    else:
        engine("edge-a").fail(incarnation(watched, "A"), "no such sensor")
    engine("cloud").fail(incarnation(watched, "B"), "no such sensor")
    watched.look()
    assert len(watched.events("job")) == 2


def test_a_failure_of_the_job_s_own_is_not_blamed_on_its_worker(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").fail(incarnation(watched, "A"), "no such sensor")
    engine("edge-a").last_end = EngineEnd(watched.time.now_ms(), METASPACE)
    watched.look()
    assert watched.job("A").error == "no such sensor"


def test_an_engine_that_does_not_say_how_it_ended_is_lost_all_the_same(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").forget_jobs()
    engine("edge-a").refuse("last_end", 1, EngineRefusedError("cannot read it"))
    watched.look()
    lost = "A is lost: the engine of edge-a answers and does not know it"
    assert watched.events("job") == [lost]


def test_a_job_that_is_cancelled_behind_specks_back_is_drift(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    watched.service.connections.engine("edge-a").cancel(incarnation(watched, "A"))

    watched.look()

    assert watched.repairs == [("c", frozenset())]
    assert watched.events("drift") == [
        "A has ended at edge-a though speck did not stop it; it is started again"
    ]


def test_with_drift_report_it_is_only_told(watched: Watched) -> None:
    deploy(watched, job_body("A"), drift="report")
    watched.service.connections.engine("edge-a").cancel(incarnation(watched, "A"))
    for _ in range(10):
        watched.look()

    assert watched.repairs == []
    assert watched.events("drift") == [
        "A has ended at edge-a though speck did not stop it; it is not repaired, since its"
        " composition says drift: report"
    ]
    look_anew(watched.service)
    assert [it.job_name for it in watched.service.composition_views.drift("c")] == ["A"]


def test_what_a_person_cancelled_is_not_said_to_be_started_again(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    changes = watched.service.changes
    engine("edge-a").unreachable = True
    changed = composition(job_body("A", args=["x"]), job_body("B", "cloud"))
    change = watched.service.compositions.apply(changed, ApplyRequest()).change
    wait_for(lambda: changes.get(change).state == "blocked")
    watched.service.runner.cancel(change)
    assert changes.await_end(change, 20)
    watched.look()
    engine("cloud").fail(incarnation(watched, "B"), "bad")

    watched.look()

    assert watched.repairs == []
    assert watched.events("job") == [
        "B has failed at cloud: bad; it is not repaired, since the last change was cancelled:"
        " apply again"
    ]


def test_a_lost_job_is_repaired_when_it_is_still_unknown_a_second_later(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").forget_jobs()

    watched.look()
    assert watched.repairs == []
    assert watched.events("job") == ["A is lost: the engine of edge-a answers and does not know it"]
    watched.look(1)
    assert watched.repairs == [("c", frozenset())]


def test_a_job_that_waits_for_slots_says_so_once(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B"))
    pool = engine("edge-a")
    pool.fail(incarnation(watched, "A"), "bad")
    pool.total = 1
    for _ in range(3):
        watched.look()

    assert watched.repairs == []
    assert watched.events("job")[-1] == "A: it waits for slots at edge-a: 0 are free, it needs 1"
    assert len(watched.events("job")) == 2
    pool.total = 2
    watched.look()
    assert watched.repairs == [("c", frozenset({"B"}))]


def test_a_job_posted_alone_is_watched_too(watched: Watched) -> None:
    watched.service.jobs.post(job("A"), 20)
    watched.look()
    watched.look()
    engine("edge-a").fail(incarnation(watched, "A", composition_of_one("A")), "bad")

    watched.look()

    assert watched.repairs == [(composition_of_one("A"), frozenset())]


def test_what_speck_stopped_stays_stopped(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    watched.service.compositions.apply(composition(job_body("A", state="stopped")), DONE)
    for _ in range(3):
        watched.look()

    assert watched.repairs == []
    assert watched.events("drift") == watched.events("job") == []


def test_silence_is_told_once_and_mends_nothing(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = True
    for _ in range(5):
        watched.look()

    [event] = watched.events("site")[len(SITES) :]
    assert event.startswith("site edge-a is unreachable: cannot reach")
    assert watched.watch._memory.jobs["c", "A"].state is JobState.UNREACHABLE
    engine("edge-a").unreachable = False
    watched.look()
    assert watched.events("site")[-1].startswith("site edge-a answers again after ")
    assert watched.repairs == []


def test_when_two_of_three_sites_vanish_at_once_nothing_is_repaired(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = engine("edge-b").unreachable = True
    engine("cloud").fail(incarnation(watched, "B"), "bad")
    for _ in range(5):
        watched.look()
    assert watched.repairs == []
    assert watched.events("site")[-1] == (
        "2 of 3 sites became unreachable at the same time (edge-a, edge-b): no job is moved or"
        " repaired until they are back"
    )

    engine("edge-a").unreachable = engine("edge-b").unreachable = False
    watched.look()

    assert watched.repairs == [("c", frozenset({"A"}))]
    assert watched.events("site")[-1] == "enough sites are back: repairs continue"


def test_a_job_that_gets_no_checkpoint_done_is_shown_as_stalled(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    World.current().auto_pump = False  # so that no checkpoint completes
    for _ in range(8):
        watched.look()

    assert watched.job("A").state == "stalled"
    assert str(watched.job("A").error).startswith("no checkpoint completed for ")
    [event] = watched.events("job")
    assert event.startswith("A is stalled at edge-a: no checkpoint completed for ")


def test_a_job_that_the_engine_restarts_is_told_with_its_exception(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    pool = engine("edge-a")
    running = pool.jobs[incarnation(watched, "A")]
    pool.fail(running.id, "no such sensor")
    running.state = RunState.RESTARTING

    watched.look()
    assert watched.job("A").state == "restarting"
    assert watched.job("A").error == "no such sensor"
    running.state = RunState.RUNNING
    watched.look()

    assert watched.job("A").error is None
    first, second = watched.events("job")
    assert first == "A is being restarted by the engine of edge-a: no such sensor"
    assert second.startswith("A runs again at edge-a after ")


@pytest.mark.parametrize("state", [RunState.RESTARTING, RunState.FAILED])
def test_an_engine_that_does_not_say_why_a_job_fails_is_asked_again_but_not_at_each_poll(
    watched: Watched, state: RunState
) -> None:
    deploy(watched, job_body("A"), drift="report")
    pool = engine("edge-a")
    running = pool.jobs[incarnation(watched, "A")]
    if state is RunState.FAILED:
        pool.fail(running.id, "no such sensor")
    else:
        pool.crash(running.id, "no such sensor")
    pool.refuse("exceptions", 2, UnreachableError("cannot reach edge-a"))

    for _ in range(10):
        watched.look(after=ASKED_AGAIN_S / 20)
    assert pool.count("exceptions") == 1
    watched.look(after=ASKED_AGAIN_S)
    assert pool.count("exceptions") == 2
    assert watched.job("A").error is None
    watched.look(after=ASKED_AGAIN_S)
    assert watched.job("A").error == "no such sensor"
    told = "A had failed or was lost: no such sensor"
    assert watched.events("job").count(told) == 1, "its event had been written without it"
    watched.look(after=2 * ASKED_AGAIN_S)
    assert watched.events("job").count(told) == 1


def test_a_job_that_fails_again_and_again_is_shown_so_between_its_failures(
    watched: Watched,
) -> None:
    deploy(watched, job_body("A"))
    pool = engine("edge-a")
    running = pool.jobs[incarnation(watched, "A")]
    for sensor in range(3):
        pool.fail(running.id, f"no sensor {sensor}")
        running.state = RunState.RESTARTING
        watched.look()
        running.state = RunState.RUNNING
        watched.look()

    assert watched.job("A").state == "restarting"
    assert watched.job("A").failures == 3
    assert [it.job_name for it in watched.service.jobs.all(state="failed")] == ["A"]
    assert watched.job("A").error == (
        "it fails again and again (3 failures are listed): no sensor 2"
    )
    watched.look(after=CALM_S)
    watched.look()
    assert watched.job("A").state == "running"
    assert watched.job("A").error is None


def test_a_fixed_version_is_not_blamed_for_the_former_one(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    pool = engine("edge-a")
    running = pool.jobs[incarnation(watched, "A")]
    for _ in range(3):
        pool.crash(running.id, "cannot read the record")
        watched.look()
        running.state = RunState.RUNNING
        watched.look()
    assert watched.job("A").state == "restarting"

    deploy(watched, job_body("A", args=["--fixed"]))

    job = watched.job("A")
    assert (job.state, job.error, job.failures) == ("running", None, 0)


def test_a_job_that_is_repaired_again_and_again_is_in_a_crash_loop(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DesiredJobs, "is_last_change_repair", lambda *_: True)
    deploy(watched, job_body("A"))
    records, pool = watched.service.records, engine("edge-a")
    for attempt in (2, 3, 4):
        old = records.incarnations.get("c", "A")
        assert old is not None
        pool.fail(old.engine_job_id, "no such sensor")
        watched.look(after=20)
        again = replace(old, attempt=attempt, engine_job_id=f"{attempt}" * 32)
        records.write(records.incarnations.put("c", again))
        pool.jobs[again.engine_job_id] = MemoryJob(
            pool,
            replace(pool.jobs[old.engine_job_id].submission, engine_job_id=again.engine_job_id),
            None,
        )
        pool.schedule()
        watched.look(after=1)
        watched.look(after=1)

    job = watched.job("A")
    assert (job.state, job.failures, job.error) == ("restarting", 3, "no such sensor")
    watched.look(after=CALM_S)
    watched.look()
    assert watched.job("A").state == "running"


def test_a_job_that_goes_back_to_its_start_has_failed(watched: Watched) -> None:
    """A poll may miss the moment at which its engine restarts it."""
    deploy(watched, job_body("A"))
    pool = engine("edge-a")
    running = pool.jobs[incarnation(watched, "A")]
    for _ in range(2):
        pool.crash(running.id, "cannot read the record")
        running.state = RunState.STARTING
        watched.look()
        running.state = RunState.RUNNING
        watched.look()

    assert watched.job("A").state == "restarting"


def test_beside_a_change_that_is_blocked_the_others_are_looked_after(watched: Watched) -> None:
    deploy(watched, job_body("A"), job_body("B", "cloud"))
    engine("edge-a").unreachable = True
    changed = composition(job_body("A", args=["x"]), job_body("B", "cloud"))
    answer = watched.service.compositions.apply(changed, ApplyRequest())
    changes = watched.service.changes
    wait_for(lambda: changes.get(answer.change).state == "blocked")
    watched.look()
    engine("cloud").fail(incarnation(watched, "B"), "bad")

    watched.look()

    assert watched.repairs == [("c", frozenset({"A"}))]
    assert watched.events("job") == ["B has failed at cloud: bad; it is started again"]
    watched.service.runner.cancel(answer.change)


def test_a_job_under_change_is_left_to_its_change(watched: Watched) -> None:
    deploy(watched, job_body("A"))
    engine("edge-a").fail(incarnation(watched, "A"), "bad")
    engine("edge-a").hold_starts = True
    answer = watched.service.compositions.apply(composition(job_body("A")), ApplyRequest())
    for _ in range(3):
        watched.look()
    assert watched.repairs == []

    engine("edge-a").let_go()
    assert watched.service.changes.await_end(answer.change, 20)
    for _ in range(3):
        watched.look()
    assert watched.repairs == []


def test_what_a_persons_change_could_not_bring_up_is_left_and_a_repair_tries_again(
    watched: Watched,
) -> None:
    deploy(watched, job_body("A"))
    records = watched.service.records
    old = records.incarnations.get("c", "A")
    assert old is not None
    new = replace(old, attempt=2, engine_job_id="2" * 32, start=StartState.REQUESTED, base=old)
    records.write(records.incarnations.put("c", new))
    for _ in range(3):
        watched.look()
    assert watched.repairs == []

    head = records.store.get("head/c")
    assert head is not None
    key = f"change/{head['last_change']}"
    change = records.store.get(key)
    assert change is not None
    records.write({key: {**change, "cause": "repair"}})
    for _ in range(2):
        watched.look()

    assert watched.repairs == [("c", frozenset())]


def test_a_job_that_breaks_again_at_once_is_left_alone_for_a_while(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DesiredJobs, "is_last_change_repair", lambda *_: True)
    deploy(watched, job_body("A"))
    old = watched.service.records.incarnations.get("c", "A")
    assert old is not None
    engine("edge-a").fail(old.engine_job_id, "bad")
    for number in range(5):
        watched.look(number * 20)
    assert len(watched.repairs) == 5
    records = watched.service.records
    again = replace(old, attempt=2, engine_job_id="2" * 32)  # which the engine does not know
    records.write(records.incarnations.put("c", again))

    watched.look(0)
    watched.look(1)

    assert len(watched.repairs) == 5
    assert "repaired 5 times so far, next repair in 1" in watched.events("job")[-1]


def test_the_watch_gives_way_to_changes_but_not_twice_running(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions: list[str] = []

    def note_wait(_: object) -> bool:
        actions.append("gave way")
        return True

    monkeypatch.setattr(service.changes, "await_calm", note_wait)
    monkeypatch.setattr(service.watch, "poll", lambda: actions.append("looked"))
    monkeypatch.setattr(service.watch, "_every_s", 0.01)
    service.watch.start()
    wait_for(lambda: len(actions) >= 5)
    assert actions[:5] == ["looked", "gave way", "looked", "looked", "gave way"]
