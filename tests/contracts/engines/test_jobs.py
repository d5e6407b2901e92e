"""Jobs: trials, starts under chosen ids, ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from speck.binding import Artifact, ArtifactKind, EngineCapability, StreamEngine, Submission, Trial
from speck.errors import DuplicateJobError, EngineRefusedError, SpeckError, UnreachableError
from speck.model.observation import RunState
from tests.contracts.engines.benches import (
    WHOLE,
    Bench,
    await_finish,
    becomes,
    run,
    stop,
    submission,
)
from tests.declared import Need
from tests.flink_server import sha256_of
from tests.waiting import wait_for


def test_an_idle_engine_tells_version_and_slots(bench: Bench, engine: StreamEngine) -> None:
    view = engine.view()
    assert view.version
    assert view.slots is not None
    assert (view.slots.total, view.slots.free) == (bench.slots, bench.slots)
    assert engine.capabilities <= frozenset(EngineCapability)


def test_a_jar_that_is_nowhere_is_refused(bench: Bench, engine: StreamEngine) -> None:
    with pytest.raises(EngineRefusedError, match=r"^cannot upload"):
        engine.upload(Artifact("1" * 64, bench.jar.with_name("absent.jar"), ArtifactKind.JAR))


def test_an_upload_is_listed_once_until_it_is_deleted(bench: Bench, engine: StreamEngine) -> None:
    sha256 = sha256_of(bench.jar)
    for _ in range(2):
        engine.upload(Artifact(sha256, bench.jar, ArtifactKind.JAR))
    (upload,) = [each for each in engine.uploads() if each.sha256 == sha256]
    assert upload.at_ms > 0
    for _ in range(2):
        engine.delete_upload(sha256)
    assert sha256 not in {each.sha256 for each in engine.uploads()}


def test_a_job_goes_on_without_its_upload_and_another_starts(
    bench: Bench, engine: StreamEngine
) -> None:
    job = run(engine, submission(bench))
    engine.delete_upload(sha256_of(bench.jar))
    other = run(engine, submission(bench))
    assert engine.status(job) is RunState.RUNNING
    assert sha256_of(bench.jar) in {each.sha256 for each in engine.uploads()}
    for each in (job, other):
        engine.cancel(each)


def test_trying_main_starts_nothing(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.TRIAL)
    desired = submission(bench)
    engine.try_main(desired)
    assert engine.status(desired.engine_job_id) is None
    assert desired.engine_job_id not in engine.view().jobs


def test_a_trial_shows_the_parallelism(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.TRIAL)
    assert engine.try_main(submission(bench, parallelism=2)) == Trial(parallelism=2)


def test_a_submitted_job_runs_under_the_chosen_id(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench, parallelism=2))
    view = engine.view()
    assert view.jobs[job].name == "trial"
    assert view.jobs[job].state is RunState.RUNNING
    assert view.jobs[job].tasks_running == view.jobs[job].tasks_total > 0
    assert view.slots is not None
    assert view.slots.free == bench.slots - 2


def test_an_id_in_use_is_refused_and_the_job_goes_on(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(DuplicateJobError, match=r"^cannot start trial"):
        engine.submit(submission(bench, job=job))
    assert engine.status(job) is RunState.RUNNING


def test_the_id_of_an_ended_job_is_refused(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    with pytest.raises(DuplicateJobError):
        engine.submit(submission(bench, job=job))
    assert engine.status(job) is RunState.CANCELED


def test_an_unknown_job_is_unknown_and_nothing_else(bench: Bench, engine: StreamEngine) -> None:
    nobody = uuid4().hex
    assert engine.status(nobody) is None
    assert engine.exceptions(nobody) == []
    asks = [engine.newest_state, engine.has_finished]
    if EngineCapability.METRICS in engine.capabilities:
        asks += [engine.job_plan, engine.metrics, engine.is_connected]
    for ask in asks:
        with pytest.raises(EngineRefusedError, match=rf"^cannot .*{nobody}"):
            ask(nobody)


def test_stopping_an_unknown_job_never_looks_like_success(
    bench: Bench, engine: StreamEngine
) -> None:
    nobody, trigger = uuid4().hex, uuid4().hex
    try:
        engine.stop(nobody, bench.folder(), trigger)
    except EngineRefusedError:
        return
    progress = await_finish(engine, nobody, trigger)
    assert progress.location is None
    assert progress.failure is not None


def test_cancel_is_harmless_when_the_job_is_gone(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    engine.cancel(job)
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    engine.cancel(job)
    engine.cancel(uuid4().hex)
    assert engine.status(job) is RunState.CANCELED


def test_a_burnt_id_never_runs(bench: Bench, engine: StreamEngine) -> None:
    desired = submission(bench)
    engine.fence(desired.engine_job_id, desired.artifact.kind)
    with pytest.raises(DuplicateJobError):
        engine.submit(desired)
    with pytest.raises(DuplicateJobError):
        engine.fence(desired.engine_job_id, desired.artifact.kind)
    assert engine.status(desired.engine_job_id) is RunState.FAILED


def test_an_id_in_use_is_not_burnt(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(DuplicateJobError):
        engine.fence(job, submission(bench).artifact.kind)
    assert engine.status(job) is RunState.RUNNING


def test_a_job_without_slots_does_not_run(bench: Bench, engine: StreamEngine) -> None:
    wide = submission(bench, parallelism=bench.slots + 1)
    engine.submit(wide)
    wait_for(lambda: wide.engine_job_id in engine.view().jobs, "the engine to list it")
    assert engine.status(wide.engine_job_id) is RunState.STARTING
    assert engine.view().jobs[wide.engine_job_id].state is RunState.STARTING


def test_a_job_that_is_stopped_has_not_finished(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    assert not engine.has_finished(job)
    stop(bench, engine, job)
    assert not engine.has_finished(job)


@pytest.mark.parametrize("bench", WHOLE, indirect=True)
def test_a_job_whose_sources_end_has_finished(bench: Bench, engine: StreamEngine) -> None:
    bounded = submission(bench, *bench.bounded())
    engine.submit(bounded)
    becomes(engine, bounded.engine_job_id, RunState.FINISHED)
    assert engine.has_finished(bounded.engine_job_id)


def test_an_engine_set_up_as_ours_passes_its_check(bench: Bench, engine: StreamEngine) -> None:
    run(engine, submission(bench))
    assert [finding for finding in engine.check() if finding.severity != "note"] == []


def test_close_may_come_twice_and_ends_no_job(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    other = bench.open()
    assert other.status(job) is RunState.RUNNING

    other.close()
    other.close()

    assert engine.status(job) is RunState.RUNNING


def test_several_threads_may_submit_at_once(bench: Bench, engine: StreamEngine) -> None:
    desired = [submission(bench) for _ in range(bench.slots)]
    start = threading.Barrier(len(desired))

    def submit(each: Submission) -> None:
        start.wait()
        engine.submit(each)

    with ThreadPoolExecutor(len(desired)) as pool:
        list(pool.map(submit, desired))
    for each in desired:
        becomes(engine, each.engine_job_id, RunState.RUNNING)


def test_an_engine_that_does_not_answer_is_unreachable(bench: Bench) -> None:
    absent = bench.open_absent()
    job, trigger, desired = uuid4().hex, uuid4().hex, submission(bench)
    has = absent.capabilities
    measuring = [
        lambda: absent.job_plan(job),
        lambda: absent.metrics(job),
        lambda: absent.is_connected(job),
        lambda: absent.measure([job]),
    ]
    calls = [
        *(measuring if EngineCapability.METRICS in has else ()),
        *([lambda: absent.try_main(desired)] if EngineCapability.TRIAL in has else ()),
        lambda: absent.view(),
        lambda: absent.upload(desired.artifact),
        lambda: absent.submit(desired),
        lambda: absent.fence(job, ArtifactKind.JAR),
        lambda: absent.status(job),
        lambda: absent.stop(job, None, trigger),
        lambda: absent.save(job, None, trigger),
        lambda: absent.save_progress(job, trigger),
        lambda: absent.cancel(job),
        lambda: absent.newest_state(job),
        lambda: absent.exceptions(job),
        lambda: absent.check(),
    ]
    for call in calls:
        with pytest.raises(SpeckError) as error:
            call()
        assert type(error.value) is UnreachableError
        assert str(error.value).startswith("cannot reach ")
    absent.close()
