"""Mains and submissions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from binders.flink.engine import FlinkEngine
from speck.binding import ArtifactKind, Submission, Target
from speck.errors import DuplicateJobError, EngineRefusedError, MainTimeoutError, UnreachableError
from speck.model.observation import RunState
from tests.flink_server import JOB_CLASS, flink_cluster
from tests.services.flink.site import Site
from tests.waiting import wait_for


def test_unknown_fields_are_ignored_in_silence_and_parallelism_is_1(site: Site) -> None:
    job = uuid4().hex
    body = {"entryClass": JOB_CLASS, "jobId": job, "programArgs": "--job-name other"}
    assert site.server.post(f"/jars/{site.jar_id()}/run", body).ok
    site.becomes(job, RunState.RUNNING)
    assert site.engine.view().jobs[job].name == "trial"
    assert {node.parallelism for node in site.engine.job_plan(job)} == {1}


def test_arguments_arrive_one_by_one(site: Site) -> None:
    job = site.run("--job-name", "ignored: the first one counts", "--count-uid", "a b  \"c' d")
    assert site.engine.view().jobs[job].name == "trial"


def test_a_failing_main_is_told_in_one_line_and_burns_nothing(site: Site) -> None:
    desired = site.submission("--fail-main")
    message = (
        "ProgramInvocationException: The main method caused an error: cannot read the trial table"
    )
    for what, call in (("try main of", site.engine.try_main), ("start", site.engine.submit)):
        with pytest.raises(EngineRefusedError) as error:
            call(desired)
        assert str(error.value) == f"cannot {what} trial: {message}"
    assert site.engine.status(desired.engine_job_id) is None
    assert site.run(job=desired.engine_job_id)


def test_a_missing_entry_class_is_named(site: Site) -> None:
    desired = site.submission()
    nowhere = Submission(desired.engine_job_id, "trial", desired.artifact, "a.B", ())
    with pytest.raises(EngineRefusedError, match=r"entry point class 'a\.B' was not found"):
        site.engine.try_main(nowhere)


def test_a_job_that_calls_exit_is_refused_and_the_engine_lives(site: Site) -> None:
    for call in (site.engine.try_main, site.engine.submit):
        with pytest.raises(EngineRefusedError, match=r"System\.exit\(3\) was refused"):
            call(site.submission("--exit"))
    job = site.start("--exit-task")
    site.becomes(job, RunState.FAILED)
    assert "System.exit(7) was refused" in site.engine.exceptions(job)[0].trace
    assert site.server.process.running
    assert site.engine.view().version


def test_a_main_that_fails_after_submitting_has_started_the_job(site: Site) -> None:
    desired = site.submission("--fail-after")
    failure = site.engine.submit(desired)
    assert failure is not None
    assert "cannot say goodbye" in failure
    site.becomes(desired.engine_job_id, RunState.RUNNING)


def test_a_duplicate_id_is_400_after_main_has_run(site: Site) -> None:
    job = site.run()
    body = {"entryClass": JOB_CLASS, "jobId": job}
    answer = site.server.post(f"/jars/{site.jar_id()}/run", body)
    assert answer.status_code == 400
    assert "Failed to execute job 'trial'" in answer.text, "main got as far as submitting"
    with pytest.raises(DuplicateJobError):
        site.engine.submit(site.submission(job=job))


def test_a_bad_savepoint_burns_the_id(site: Site) -> None:
    job = uuid4().hex
    with pytest.raises(EngineRefusedError, match="Cannot find checkpoint or savepoint"):
        site.engine.submit(site.submission(job=job, savepoint="/nowhere/savepoint-1"))
    assert site.engine.status(job) is RunState.FAILED
    with pytest.raises(DuplicateJobError):
        site.engine.submit(site.submission(job=job))


def test_a_main_that_does_not_return_is_reported_and_its_late_start_is_refused(
    site: Site, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    impatient = FlinkEngine(Target(site.server.url, main_timeout_s=1.0))
    wanted = site.submission("--hold-main", str(hold))
    site.engine.upload(wanted.artifact)
    with pytest.raises(MainTimeoutError, match="did not return within 1 s"):
        impatient.try_main(wanted)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(site.engine.submit, wanted)
        with pytest.raises(MainTimeoutError, match="did not return within 1 s"):
            impatient.submit(wanted)
        assert site.engine.status(wanted.engine_job_id) is None
        site.engine.fence(wanted.engine_job_id, ArtifactKind.JAR)
        assert hold.exists(), "no code of the user was awaited"
        hold.unlink()
        with pytest.raises(DuplicateJobError):
            late.result()
    assert site.engine.status(wanted.engine_job_id) is RunState.FAILED


@pytest.mark.long
def test_trials_that_hang_hold_threads_and_fencing_does_not_need_them(
    tmp_path: Path, trial_jar: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    with flink_cluster(tmp_path, slots=1, config={"rest.server.numThreads": "2"}) as server:
        site = Site(server, trial_jar)
        fenced = uuid4().hex
        site.engine.fence(fenced, ArtifactKind.JAR)
        target = Target(server.url, timeout_s=2.0, main_timeout_s=1.0)
        impatient = FlinkEngine(target)
        for _ in range(2):
            with pytest.raises(MainTimeoutError):
                impatient.try_main(site.submission("--hold-main", str(hold)))
        with pytest.raises(UnreachableError, match="no answer in time"):
            impatient.status(fenced)
        site.engine.fence(uuid4().hex, ArtifactKind.JAR)
        with pytest.raises(UnreachableError, match=r"takes no jar: .*; restart the engine"):
            FlinkEngine(target).fence(uuid4().hex, ArtifactKind.JAR)
        hold.unlink()  # or else the engine takes long to stop


def test_state_that_does_not_fit_is_refused_not_dropped(site: Site) -> None:
    location = site.stop(site.run()).location
    with pytest.raises(EngineRefusedError, match="Cannot map checkpoint/savepoint state"):
        site.engine.submit(site.submission("--count-uid", "other", savepoint=location))


def test_running_does_not_mean_that_tasks_run(site: Site) -> None:
    job = site.start(width=9)
    state = wait_for(lambda: site.server.get(f"/jobs/{job}").json()["state"] == "RUNNING", "a plan")
    assert state
    assert site.engine.status(job) is RunState.STARTING
    view = site.engine.view().jobs[job]
    assert view.state is RunState.STARTING
    assert (view.tasks_running, view.tasks_total) == (0, 18)


def test_what_main_decides_is_found_out(site: Site) -> None:
    """A main that catches what ends its trial, or sets its parallelism."""
    assert not site.engine.try_main(site.submission("--catch")).has_built
    assert site.engine.try_main(site.submission("--parallelism", "40")).parallelism == 40


def test_a_second_pipeline_of_main_is_reported_and_does_not_run(site: Site) -> None:
    desired = site.submission("--second")
    assert site.engine.try_main(desired).has_built  # a trial ends main at its first execute()
    failure = site.engine.submit(desired)
    assert failure is not None
    assert "Cannot have more than 1 streaming jobs" in failure
    site.becomes(desired.engine_job_id, RunState.RUNNING)
    (job,) = (job for job in site.engine.view().jobs.values() if not job.state.terminal)
    assert job.engine_job_id == desired.engine_job_id
