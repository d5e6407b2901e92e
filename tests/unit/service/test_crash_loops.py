"""Jobs that fail again and again, and repairs that do not help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binders.memory.slots import MemoryJob
from speck.errors import UnreachableError
from speck.model.incarnation import StartState
from speck.model.observation import RunState
from speck.monitor.health_events import ASKED_AGAIN_S, CALM_S
from speck.store.desired_state import DesiredJobs
from tests.service_helpers import engine, job_body
from tests.watching import Watched, deploy, incarnation


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
