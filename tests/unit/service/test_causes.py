"""Why a job has failed or is lost, as events say it."""

from __future__ import annotations

import threading

import pytest

from speck.binding import EngineEnd, JobException
from speck.errors import EngineRefusedError
from speck.model.observation import RunState
from speck.monitor import failure_causes
from speck.monitor.health_events import ASKED_AGAIN_S
from tests.service_helpers import engine, job_body
from tests.waiting import wait_for
from tests.watching import Watched, deploy, incarnation

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
