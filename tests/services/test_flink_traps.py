"""How Flink's REST API really behaves, and that the binder copes; each against a real Flink."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from binders.flink.engine import FlinkEngine
from binders.flink.layout import LAYOUT
from speck.agent.folder import StateFolder
from speck.binding import Artifact, ArtifactKind, SavedState, SaveProgress, Submission, Target
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    MainTimeoutError,
    TransientError,
    UnreachableError,
)
from speck.fog.flink_conf import Runtime
from speck.model.observation import RunState
from tests.flink_server import JOB_CLASS, FlinkServer, flink_cluster, sha256_of
from tests.waiting import wait_for


class Site:
    """A Flink, a binder on it, and the trial job."""

    def __init__(self, server: FlinkServer, jar: Path):
        self.server = server
        self.jar = jar
        self.engine = FlinkEngine(Target(server.url))

    def submission(
        self, *args: str, job: str | None = None, width: int = 1, savepoint: str | None = None
    ) -> Submission:
        return Submission(
            engine_job_id=job or uuid4().hex,
            job_name="trial",
            artifact=Artifact(sha256_of(self.jar), self.jar, ArtifactKind.JAR),
            entry=JOB_CLASS,
            args=("--job-name", "trial", *args),
            parallelism=width,
            state=savepoint,
        )

    def start(self, *args: str, **options: Any) -> str:
        desired = self.submission(*args, **options)
        self.engine.submit(desired)
        return desired.engine_job_id

    def run(self, *args: str, **options: Any) -> str:
        job = self.start(*args, **options)
        self.becomes(job, RunState.RUNNING)
        return job

    def becomes(self, job: str, state: RunState) -> None:
        wait_for(lambda: self.engine.status(job) is state, f"{job} to be {state}")

    def folder(self) -> Path:
        return self.server.state_dir / uuid4().hex

    def finished(self, job: str, trigger: str) -> SaveProgress:
        def look() -> SaveProgress | None:
            progress = self.engine.save_progress(job, trigger)
            return progress if progress.done else None

        return wait_for(look, "the savepoint")

    def stop(self, job: str) -> SaveProgress:
        trigger = uuid4().hex
        self.engine.stop(job, f"file://{self.folder()}", trigger)
        return self.finished(job, trigger)

    def jar_id(self) -> str:
        """The trial jar's id, uploading it when it is not there."""
        self.engine.upload(Artifact(sha256_of(self.jar), self.jar, ArtifactKind.JAR))
        return self.jar_ids()[0]

    def jar_ids(self) -> list[str]:
        name = f"{sha256_of(self.jar)}.jar"
        files = self.server.get("/jars").json()["files"]
        return [jar["id"] for jar in files if jar["name"] == name]

    def newest_folder(self, job: str) -> int:
        """The highest n of the job's chk-n folders that are complete."""
        folder = self.server.state_dir / "checkpoints" / job
        return max(
            (int(path.parent.name[4:]) for path in folder.glob("chk-*/_metadata")), default=0
        )

    def tidy(self) -> None:
        for job in self.engine.view().jobs.values():
            if not job.state.terminal:
                self.engine.cancel(job.engine_job_id)
        wait_for(lambda: self._all_free(), "free slots")

    def _all_free(self) -> bool:
        slots = self.engine.view().slots
        return slots is not None and slots.free == slots.total


@pytest.fixture
def site(flink: FlinkServer, trial_jar: Path) -> Iterator[Site]:
    site = Site(flink, trial_jar)
    yield site
    site.tidy()
    site.engine.close()


@pytest.fixture(scope="module")
def slow_views(tmp_path_factory: pytest.TempPathFactory, trial_jar: Path) -> Iterator[Site]:
    """An engine with Flink's own caches of 3 s, small requests, and a minute between restarts."""
    config = {
        "rest.cache.execution-graph.timeout": "3 s",
        "rest.cache.checkpoint-statistics.timeout": "3 s",
        "rest.server.max-content-length": "200000",
        "restart-strategy.fixed-delay.delay": "60 s",
        "heartbeat.timeout": "50000",
        "execution.checkpointing.num-retained": "1",
        "rest.async.store-duration": "5 min",
        "metrics.fetcher.update-interval": "10000",
    }
    folder = tmp_path_factory.mktemp("slow-views")
    with flink_cluster(folder, slots=2, config=config) as server:
        yield Site(server, trial_jar)


def upload(server: FlinkServer, name: str, content: bytes, **fields: str) -> requests.Response:
    files = {"anything": (name, content)}
    return requests.post(f"{server.url}/jars/upload", files=files, data=fields, timeout=30)


# Jars


def test_upload_takes_any_content_under_a_jar_name_and_no_other_field(site: Site) -> None:
    first = upload(site.server, "junk.jar", b"no zip at all")
    second = upload(site.server, "junk.jar", b"no zip at all")
    ids = [Path(answer.json()["filename"]).name for answer in (first, second)]
    assert ids[0] != ids[1]
    assert all(each.endswith("_junk.jar") for each in ids)
    assert upload(site.server, "junk.zip", b"no zip at all").status_code == 400
    assert upload(site.server, "junk.jar", b"no zip at all", more="x").status_code == 400
    for each in ids:
        assert requests.delete(f"{site.server.url}/jars/{each}", timeout=20).ok


def test_a_broken_jar_is_found_by_trying_main(site: Site, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no zip at all")
    site.jar = broken
    with pytest.raises(EngineRefusedError, match="zip END header not found"):
        site.engine.try_main(site.submission())


@pytest.mark.long
def test_upload_passes_the_limit_on_requests_and_memory_stays_flat(
    slow_views: Site, tmp_path: Path
) -> None:
    big = tmp_path / "big.jar"
    with big.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        slow_views.engine.upload(Artifact("b" * 64, big, ArtifactKind.JAR))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024
    sizes = [
        path.stat().st_size for path in (slow_views.server.folder / "upload").rglob("*bbb.jar")
    ]
    assert sizes == [64 * 1024 * 1024]


def test_many_threads_upload_one_copy(site: Site, tmp_path: Path) -> None:
    site.jar = tmp_path / "copy.jar"
    site.jar.write_bytes(uuid4().bytes)
    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(
            lambda _: site.engine.upload(Artifact(sha256_of(site.jar), site.jar, ArtifactKind.JAR)),
            range(32),
        ):
            pass
    assert len(site.jar_ids()) == 1
    again = FlinkEngine(Target(site.server.url))
    again.upload(Artifact(sha256_of(site.jar), site.jar, ArtifactKind.JAR))
    assert len(site.jar_ids()) == 1, "another binder finds it by its name"


def test_a_jar_that_has_vanished_is_uploaded_again(site: Site) -> None:
    old_id = site.jar_id()
    requests.delete(f"{site.server.url}/jars/{old_id}", timeout=20)
    answer = site.server.post(f"/jars/{old_id}/run", {"entryClass": JOB_CLASS})
    assert answer.status_code == 500
    assert "does not exist" in answer.text
    site.engine.try_main(site.submission())
    assert old_id not in site.jar_ids()
    assert site.run()


# Run


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


def test_an_unknown_job_is_404_but_its_status_500(site: Site) -> None:
    nobody = uuid4().hex
    assert site.server.get(f"/jobs/{nobody}").status_code == 404
    assert site.server.get(f"/jobs/{nobody}/status").status_code == 500
    assert site.engine.status(nobody) is None


def test_a_failed_job_tells_why(site: Site) -> None:
    job = site.start("--fail-task")
    site.becomes(job, RunState.FAILED)
    failures = site.engine.exceptions(job)
    assert any("cannot count" in failure.trace for failure in failures)
    assert [failure.at_ms for failure in failures] == sorted(
        (failure.at_ms for failure in failures), reverse=True
    )
    assert all(len(str(failure.name)) < 200 for failure in failures)


@pytest.mark.long
def test_a_job_between_two_tries_is_restarting(slow_views: Site) -> None:
    job = slow_views.start("--fail-task")
    slow_views.becomes(job, RunState.RESTARTING)
    assert slow_views.engine.view().jobs[job].state is RunState.RESTARTING
    slow_views.tidy()


# Stop and savepoints


def test_a_good_savepoint_of_a_job_that_failed_while_stopping(site: Site) -> None:
    job = site.run("--fail-close")
    progress = site.stop(job)
    assert progress.location is not None
    assert progress.failure is not None
    site.becomes(job, RunState.FAILED)
    newest = site.engine.newest_state(job)
    assert newest is not None
    assert newest.location == progress.location
    assert site.run(savepoint=progress.location)


def test_a_lost_answer_is_found_in_the_stops_own_folder(site: Site) -> None:
    job, folder, trigger = site.run(), site.folder(), uuid4().hex
    site.engine.stop(job, f"file://{folder}", trigger)
    site.becomes(job, RunState.FINISHED)
    savepoints = [path.parent for path in folder.glob("savepoint-*/_metadata")]
    assert [f"file:{path}" for path in savepoints] == [site.finished(job, trigger).location]


def test_the_first_folder_of_a_trigger_counts(site: Site) -> None:
    job, first, second, trigger = site.run(), site.folder(), site.folder(), uuid4().hex
    site.engine.stop(job, f"file://{first}", trigger)
    site.engine.stop(job, f"file://{second}", trigger)
    location = site.finished(job, trigger).location
    assert location is not None
    assert location.startswith(f"file:{first}/")
    assert not second.exists()


def test_a_slow_savepoint_is_not_a_failed_one(site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    job, trigger = site.run("--hold-snapshot", str(hold)), uuid4().hex
    hold.touch()
    site.engine.stop(job, f"file://{site.folder()}", trigger)
    progress = site.engine.save_progress(job, trigger)
    assert (progress.done, progress.location, progress.failure) == (False, None, None)
    assert site.engine.status(job) is RunState.RUNNING
    hold.unlink()
    assert site.finished(job, trigger).location is not None


def test_a_stop_that_finds_no_running_tasks_fails_by_its_progress(site: Site) -> None:
    job = site.start(width=9)
    progress = site.stop(job)
    assert progress.location is None
    assert progress.failure is not None
    assert "\n" not in progress.failure
    # Flink tries anew when slots come free elsewhere, but it does not end
    assert site.engine.status(job) in (RunState.STARTING, RunState.RESTARTING)


def test_a_savepoint_is_restored_after_its_folder_has_moved(site: Site, tmp_path: Path) -> None:
    location = site.stop(site.run()).location
    assert location is not None
    new_folder = tmp_path / "elsewhere" / "savepoint"
    shutil.move(location.removeprefix("file:"), new_folder)
    assert site.run(savepoint=f"file://{new_folder}")


def test_checkpoints_of_a_job_that_finished_are_gone(site: Site) -> None:
    job = site.start("--records", "500")
    site.becomes(job, RunState.FINISHED)
    assert site.server.get(f"/jobs/{job}/checkpoints").json()["counts"]["completed"] > 0
    with pytest.raises(EngineRefusedError, match=r"every checkpoint .* was discarded"):
        site.engine.newest_state(job)
    assert site.newest_folder(job) == 0


def test_what_it_was_restored_from_counts_until_a_checkpoint_completes(site: Site) -> None:
    location = site.stop(site.run()).location
    job = site.start(width=9, savepoint=location)
    newest = wait_for(lambda: site.engine.newest_state(job), "the restored state")
    assert newest.location == location


def test_cancel_answers_409_or_404_once_the_job_is_gone(site: Site) -> None:
    job = site.run()
    site.stop(job)
    site.becomes(job, RunState.FINISHED)
    cancel = f"{site.server.url}/jobs/%s?mode=cancel"
    assert requests.patch(cancel % job, timeout=20).status_code == 409
    assert requests.patch(cancel % uuid4().hex, timeout=20).status_code == 404
    site.engine.cancel(job)
    site.engine.cancel(uuid4().hex)
    assert site.engine.status(job) is RunState.FINISHED


@pytest.mark.long
def test_the_newest_checkpoint_is_not_one_out_of_a_cache(slow_views: Site) -> None:
    job = slow_views.run()

    def newest_known() -> SavedState | None:
        with suppress(TransientError):  # all that the cache lists may be gone by now
            return slow_views.engine.newest_state(job)
        return None

    checkpoint = wait_for(newest_known, "a checkpoint")
    wait_for(
        lambda: slow_views.newest_folder(job) > checkpoint.number,
        "a checkpoint that the engine's cache does not hold",
    )
    slow_views.engine.cancel(job)
    wait_for(lambda: slow_views.engine.view().jobs[job].state.terminal, "its end")
    newest = slow_views.engine.newest_state(job)
    assert newest is not None
    assert newest.number == slow_views.newest_folder(job)


# Death of the JobManager


@pytest.mark.long
def test_after_kill_9_jobs_are_unknown_jars_are_there_and_state_is_good(
    tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2) as server:
        site = Site(server, trial_jar)
        job = site.run()
        wait_for(lambda: site.engine.newest_state(job), "a checkpoint")
        assert site.engine.last_end() is None
        server.restart("engine")
        assert site.engine.status(job) is None
        end = site.engine.last_end()
        assert end is not None
        assert "it was stopped, or killed (by the kernel if memory ran out" in end.reason
        state = server.state_dir / "checkpoints" / job / f"chk-{site.newest_folder(job)}"
        new = site.run(savepoint=f"file://{state}")
        assert len(site.jar_ids()) == 1
        restored = server.get(f"/jobs/{new}/checkpoints").json()["latest"]["restored"]
        assert restored["external_path"] == f"file:{state}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "what", "expected"),
    [
        ("single", "heap", "OutOfMemoryError: Java heap space (a job holds too much"),
        ("single", "metaspace", "OutOfMemoryError: Metaspace (use thin jars"),
        ("cluster", "metaspace", "the taskmanager was restarted at "),
    ],
)
def test_an_engine_that_ran_out_of_memory_says_of_which(
    kind: Runtime, what: str, expected: str, tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2, kind=kind) as server:
        site = Site(server, trial_jar)
        role = "engine" if kind == "single" else "taskmanager"
        site.start("--fill", what)
        wait_for(lambda: not server.processes[role].running, "its end", 120.0)
        server.restart(role)
        wait_for(lambda: expected in str(site.engine.last_end()), "the reason")


@pytest.mark.long
def test_a_job_that_fills_the_direct_memory_fails_with_that_reason(site: Site) -> None:
    job = site.start("--fill", "direct")
    failures = wait_for(lambda: site.engine.exceptions(job), "its failure", 120.0)
    assert "OutOfMemoryError: " in failures[0].reason
    assert "direct" in failures[0].reason.lower()


@pytest.mark.long
def test_a_task_manager_leaves_a_dead_job_manager_and_offers_its_slots_again(
    tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2, kind="cluster") as server:
        site = Site(server, trial_jar)
        job = site.run(width=2)
        server.restart("jobmanager")
        assert site.engine.status(job) is None
        site.tidy()
        assert site.run(width=2)


# Metrics


def test_only_the_operators_own_counters_count_in_a_chained_job(site: Site) -> None:
    job = site.run("--chained")
    metrics = wait_for(
        lambda: (
            metrics
            if (metrics := site.engine.metrics(job)).get("Source__numbers.numRecordsOut")
            else None
        ),
        "counters",
    )
    vertices = site.server.get(f"/jobs/{job}").json()["vertices"]
    assert [vertex["metrics"]["write-records"] for vertex in vertices] == [0]
    assert metrics["nothing__Writer.numRecordsIn"] > 0
    assert metrics["nothing__Writer.numRecordsSend"] == 0, "the writer itself must count"
    busy = [name for name in metrics if name.endswith(".accumulateBusyTimeMs")]
    assert busy == [f"{vertices[0]['id']}.accumulateBusyTimeMs"]
    assert not [name for name in metrics if "PerSecond" in name or "Watermark" in name]


def test_one_unknown_name_empties_an_aggregated_answer(site: Site) -> None:
    job = site.run()
    vertex = f"/jobs/{job}/vertices/{site.engine.job_plan(job)[0].id}"
    known, unknown = "numRecordsIn", "numRecordsNever"
    wait_for(lambda: site.server.get(f"{vertex}/metrics").json(), "metrics")
    every = site.server.get(f"{vertex}/subtasks/metrics", get=f"{known},{unknown}", agg="sum")
    assert every.json() == []
    each = site.server.get(f"{vertex}/metrics", get=f"0.{known},0.{unknown}").json()
    assert [metric["id"] for metric in each] == [f"0.{known}"]


def test_a_task_tells_its_busy_time_once_its_operators_are_open(site: Site, tmp_path: Path) -> None:
    """Until then it may not have all its metrics: the binder goes on asking for their names."""
    hold = tmp_path / "hold"
    hold.touch()
    job = site.start("--hold-open", str(hold))
    wait_for(lambda: site.engine.view().jobs[job].tasks_total == 2, "a plan")

    def busy() -> list[float | None]:
        measures = site.engine.measure([job]).jobs.get(job)
        return [task.busy_ms for task in measures.tasks] if measures is not None else []

    wait_for(lambda: [it is None for it in busy()] == [False, True], "the source's task alone")
    hold.unlink()
    wait_for(lambda: len(times := busy()) == 2 and None not in times, "both tasks")


def test_a_wide_job_has_more_metrics_than_one_request_takes(site: Site) -> None:
    job = site.run(width=8)
    names = ("Source__numbers.numRecordsOut", "count.numRecordsIn", "nothing__Writer.numRecordsIn")
    wait_for(lambda: set(names) <= set(site.engine.metrics(job)), "all")


def test_the_metaspace_is_measured(site: Site) -> None:
    share = wait_for(lambda: site.engine.measure([]).metaspace_share, "the metaspace")
    assert 0.01 < share < 0.8  # less with an archive of classes, which are not in it


def test_what_a_job_prints_is_in_the_rotated_log(site: Site) -> None:
    log = site.server.engine.log
    job = site.run("--print")
    wait_for(lambda: "printed printed" in log.read_text(errors="replace"), "its words")
    site.engine.cancel(job)
    assert "printed" not in log.with_suffix(".out").read_text()


# Settings


@pytest.mark.long
def test_check_names_what_is_wrong_and_mends_it(slow_views: Site) -> None:
    mends = {finding.setting: finding.mend for finding in slow_views.engine.check()}
    assert mends == {
        "heartbeat.timeout": "heartbeat.timeout: 10000",
        "execution.checkpointing.num-retained": "execution.checkpointing.num-retained: 5",
        "rest.async.store-duration": "rest.async.store-duration: 1h",
        "metrics.fetcher.update-interval": "metrics.fetcher.update-interval: 2000",
        "rest.cache.execution-graph.timeout": "rest.cache.execution-graph.timeout: 500",
        "rest.cache.checkpoint-statistics.timeout": (
            "rest.cache.checkpoint-statistics.timeout: 500"
        ),
    }


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


@pytest.mark.long
def test_a_job_s_own_checkpoint_folder_is_reported_and_listed(site: Site, tmp_path: Path) -> None:
    job = site.run("--checkpoints", f"file://{tmp_path}/own")

    def folder() -> str | None:
        checkpointing = site.engine.checkpointing(job)
        return checkpointing.folder if checkpointing is not None else None

    own = wait_for(folder, "a checkpoint")
    assert own == f"file:{tmp_path}/own/{job}"
    site.engine.cancel(job)
    site.becomes(job, RunState.CANCELED)
    newest = site.engine.newest_state(job)
    assert newest is not None
    states = StateFolder(site.server.state_dir).states(job, LAYOUT, own)
    assert f"file:{states[0].folder}" == newest.location
    new = site.run("--checkpoints", f"file://{tmp_path}/own", savepoint=newest.location)
    restored = site.server.get(f"/jobs/{new}/checkpoints").json()["latest"]["restored"]
    assert restored["external_path"] == newest.location
