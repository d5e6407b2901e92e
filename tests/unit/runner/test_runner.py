"""The life of programs: real processes, under a runner in this one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from binders.process.engine import ProcessEngine
from binders.process.layout import LAYOUT
from speck.agent.folder import StateFolder
from speck.binding import Target
from speck.errors import DuplicateJobError, EngineRefusedError, PermanentError
from speck.model.observation import RunState
from speck.runner import processes
from speck.runner.groups import limits_memory
from speck.runner.processes import find_members, list_sessions, send
from speck.runner.runner import Runner
from tests.channels import LocalChannel
from tests.runner_places import Open, Place, pick_users
from tests.runners import PROGRAMS, LocalRunner
from tests.unit.runner.test_groups import find_root
from tests.waiting import wait_for


def test_programs_outlive_their_runner(place: Place) -> None:
    job = place.run()
    before = place.main(job)
    place.local.leave()
    assert processes.read_process(before.pid) is not None
    place.local.come()
    assert place.engine.status(job) is RunState.RUNNING
    assert place.main(job).pid == before.pid
    assert place.starts(job) == ["0"]
    assert place.stop(job).failure is None
    assert not place.program(job).alive


@pytest.mark.parametrize("away", [False, True])
def test_a_program_that_is_killed_goes_on_from_its_state(place: Place, away: bool) -> None:
    job = place.run()
    wait_for(lambda: place.step(job) > 2, "some steps")
    killed = place.main(job)
    if away:
        place.local.leave()
    send([killed], signal.SIGKILL)
    if away:
        place.local.come()
    wait_for(lambda: len(place.starts(job)) == 2, "another start", 30)
    place.await_state(job, RunState.RUNNING)
    assert int(place.starts(job)[1]) > 2
    assert place.failures(job)[0].startswith("it was ended by SIGKILL")
    wait_for(lambda: place.engine.measure([job]).jobs[job].restarts == 1, "the count")


def test_with_its_shim_killed_a_program_goes_on(place: Place) -> None:
    job = place.run()
    main = place.main(job)
    send([each for each in place.members(job) if each.pid != main.pid], signal.SIGKILL)
    wait_for(lambda: len(place.members(job)) == 1, "the shim to be gone")
    assert place.engine.status(job) is RunState.RUNNING
    assert place.stop(job).failure == "it was killed while it was being stopped", "nobody knows"
    assert place.engine.newest_state(job) is not None
    assert len(place.starts(job)) == 1


def test_after_a_restart_of_the_machine_the_first_answer_knows_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, ended = place.run(), place.run()
    place.engine.cancel(ended)
    place.await_state(ended, RunState.CANCELED)
    wait_for(lambda: place.step(job) > 2, "some steps")
    members = place.members(job)
    place.local.leave()
    send(members, signal.SIGKILL)
    wait_for(lambda: not place.program(job).alive, "the program to be gone")
    monkeypatch.setattr("speck.runner.program.read_boot", lambda: "another")
    monkeypatch.setattr(processes, "read_boot", lambda: "another")
    place.local.runner = Runner(place.local.settings)
    assert place.engine.status(job) is RunState.RESTARTING
    assert place.engine.status(ended) is RunState.CANCELED
    os.close(place.local.runner._lock or -1)
    place.local.come()
    place.await_state(job, RunState.RUNNING)
    assert int(place.starts(job)[1]) > 2
    assert place.failures(job) == [], "that is no failure of the program"


def test_a_machine_that_shuts_down_ends_no_job(place: Place) -> None:
    """It sends SIGTERM to all processes, and the program ends with status 0."""
    job = place.run()
    send(place.members(job), signal.SIGTERM)
    wait_for(lambda: len(place.starts(job)) == 2, "another start", 30)
    place.await_state(job, RunState.RUNNING)


def test_a_stop_is_known_whatever_becomes_of_the_runner(place: Place) -> None:
    job, trigger = place.run(), uuid4().hex
    place.engine.stop(job, None, trigger)
    place.local.leave()
    wait_for(lambda: not place.program(job).alive, "the program to end")
    place.local.come()
    progress = place.await_progress(job, trigger)
    assert progress.failure is None
    state = place.engine.newest_state(job)
    assert state is not None
    assert (state.on_request, state.location) == (True, progress.location)
    (found,) = StateFolder(place.folder).states(job, LAYOUT)
    assert (f"file://{found.folder}", found.number) == (state.location, state.number)
    assert place.engine.has_finished(job) is False


def test_one_that_does_not_end_is_killed_and_the_stop_fails(open_place: Open) -> None:
    place = open_place(stop_s=0.3)
    job = place.run("--stubborn")
    assert place.stop(job).failure == (
        "it did not end within 0.3 s of SIGTERM while it was being stopped"
    )
    assert place.engine.newest_state(job) is not None
    place.await_state(job, RunState.FAILED)


def test_one_that_never_ran_has_failed_and_says_why(place: Place) -> None:
    job = place.start("--late-s", "60", "--fail-at", "3")
    place.await_state(job, RunState.FAILED)
    (failure,) = place.engine.exceptions(job)
    assert failure.reason == "it ended with status 3: cannot go on: step 3"
    assert "started at 0" in failure.trace


def test_crashes_are_followed_by_longer_and_longer_pauses(open_place: Open) -> None:
    place = open_place(retry_first_s=0.1, retry_most_s=0.4)
    job = place.run("--fail-at", "2")
    wait_for(lambda: len(place.failures(job)) == 3, "three crashes", 30)
    assert place.program(job)._backoff_s == 0.4
    assert place.engine.status(job) in (RunState.RESTARTING, RunState.RUNNING)
    place.engine.cancel(job)
    place.await_state(job, RunState.CANCELED)


def test_a_program_that_reports_nothing_runs_all_the_same(open_place: Open) -> None:
    place = open_place(quiet_s=0.3)
    job = place.run("--silent")
    trigger = uuid4().hex
    place.engine.save(job, None, trigger)
    assert place.await_progress(job, trigger).failure == (
        "the program takes no checkpoints on request"
    )
    wait_for(lambda: place.step(job), "its first step: before, SIGTERM just ends it", 30)
    assert place.stop(job).failure is None


def test_memory_has_a_limit(place: Place) -> None:
    job = place.start("--allocate-mb", "200", memory_mb=60)
    by_args = place.start("--memory-mb", "70", "--allocate-mb", "200")
    both = place.start("--memory-mb", "300", "--allocate-mb", "200", memory_mb=80)
    for each, most in ((job, 60), (by_args, 70), (both, 80)):
        wait_for(lambda each=each: place.failures(each), "the limit", 30)
        assert place.failures(each)[-1].startswith(
            f"it used more than {most} MB of memory; give it more with memory_mb"
        )


def test_what_a_program_has_started_ends_with_it(place: Place) -> None:
    job = place.run("--child")
    assert len(place.members(job)) == 3
    send([place.main(job)], signal.SIGKILL)
    wait_for(lambda: len(place.starts(job)) == 2, "another start", 30)
    place.await_state(job, RunState.RUNNING)
    wait_for(lambda: len(place.members(job)) == 3, "one child only")
    session = place.program(job).record.session
    place.engine.cancel(job)
    place.await_state(job, RunState.CANCELED)
    assert session is not None
    wait_for(lambda: not find_members(session), "all to end")


def test_figures_are_measured(place: Place) -> None:
    job = place.run()
    measure = wait_for(
        lambda: (m := place.engine.measure([job]).jobs[job]).tasks[0].cpu_ms and m, "figures"
    )
    (task,) = measure.tasks
    assert (task.is_source, task.is_sink) == (True, True)
    assert task.records_in == task.records_out > 0
    assert task.cpu_ms
    measures = place.engine.measure([job])
    assert measures.memory_bytes
    assert measures.cpu_ms >= task.cpu_ms
    assert 0 < measures.cores <= (os.cpu_count() or 0)
    state = place.folder / f"programs/{job}/state"
    (state / "rows").write_bytes(bytes(50_000))
    (state / "elsewhere").symlink_to("/usr")
    bytes_of = lambda: place.engine.measure([job]).jobs[job].checkpoint_bytes  # noqa: E731
    wait_for(lambda: 50_000 <= (bytes_of() or 0) < 60_000, "the size of its state")
    assert place.engine.metrics(job)["program.steps"] > 0


def test_a_job_sees_nothing_of_the_runners_environment(
    open_place: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECK_TOKEN", "secret")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "own").write_text("user=a\npassword=b\naddress=tcp://own:1883")
    (credentials / "other").write_text("user=c\npassword=d\naddress=tcp://other:1883")
    place = open_place(credentials=credentials)
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import json, os, sys\n"
        "state = os.environ['SPECK_STATE_DIR']\n"
        "folder = os.environ['SPECK_CREDENTIALS_DIR']\n"
        "seen = [dict(os.environ), os.listdir(folder), sys.argv, os.listdir('/proc/self/fd')]\n"
        "json.dump(seen, open(state + '/seen', 'w'))\n"
        "open(state + '/checkpoint', 'wb').write(bytes(8))\n"
    )
    job = place.start("--source-broker", "tcp://own:1883", "--key", "s3cret", file=spy)
    place.await_state(job, RunState.FINISHED)
    seen = (place.folder / f"programs/{job}/state/seen").read_text()
    assert "s3cret" in seen
    assert '["own"]' in seen
    assert "SPECK_TOKEN" not in seen
    assert place.engine.has_finished(job)


def test_arguments_are_in_no_command_line(place: Place) -> None:
    """Every user of a machine may read those."""
    job = place.run("--key", "s3cret")
    for process in place.members(job):
        assert b"s3cret" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_a_zipapp_and_a_wheel_are_run(place: Place, tmp_path: Path) -> None:
    zipapp, wheel = tmp_path / "app.pyz", tmp_path / "lib-1.0-py3-none-any.whl"
    source = (PROGRAMS / "stepping.py").read_text()
    with zipfile.ZipFile(zipapp, "w") as archive:
        archive.writestr("__main__.py", source)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("steps/__init__.py", "")
        archive.writestr("steps/run.py", source)
        archive.writestr("steps/call.py", "def main(): from steps import run")
    for file, entry in ((zipapp, ""), (wheel, "steps.run"), (wheel, "steps.call:main")):
        job = place.run(file=file, entry=entry)
        assert place.stop(job).failure is None


def test_a_tar_archive_holds_a_program_of_any_language(open_place: Open, tmp_path: Path) -> None:
    place = open_place(quiet_s=0.3)
    script = tmp_path / "job"
    script.write_text(
        "#!/bin/sh\n"
        "trap 'echo saved >\"$SPECK_STATE_DIR/data\"; exit 0' TERM\n"
        'echo "$@" >"$SPECK_STATE_DIR/args"\n'
        "while :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(script, "bin/job")
    job = place.run("--x", file=archive, entry="bin/job")
    wait_for((place.folder / f"programs/{job}/state/args").exists, "the program to begin")
    assert place.engine.newest_state(job) is None, "it numbers no states of its own"
    progress = place.stop(job)
    assert progress.failure is None
    state = place.engine.newest_state(job)
    assert state is not None
    follower = place.run(file=archive, entry="bin/job", state=state.location)
    folder = place.folder / f"programs/{follower}/state"
    assert (folder / "data").read_text() == "saved\n"
    wait_for(lambda: "--x" not in (folder / "args").read_text(), "arguments of its own")


def test_an_id_is_claimed_for_ever(place: Place) -> None:
    job = place.run("--records", "3")
    place.await_state(job, RunState.FINISHED)
    for _ in range(2):
        with pytest.raises(DuplicateJobError, match=f"^cannot start trial: {job} has been started"):
            place.engine.submit(place.submission(engine_job_id=job))
        place.local.leave()
        place.local.come()


def test_a_start_that_was_cut_short_leaves_nothing(place: Place) -> None:
    place.local.leave()
    half = place.folder / "programs/.half"
    (half / "state").mkdir(parents=True)
    place.local.come()
    assert not half.exists()


def test_without_its_state_it_does_not_start(place: Place) -> None:
    job = place.run()
    place.local.leave()
    shutil.rmtree(place.folder / f"programs/{job}/state")
    send(place.members(job), signal.SIGKILL)
    place.local.come()
    place.await_state(job, RunState.FAILED)
    assert place.failures(job)[0] == "its state is gone; without it, it does not start"


def test_there_is_one_runner_of_a_folder(place: Place) -> None:
    with pytest.raises(PermanentError, match="another runner supervises programs"):
        Runner(place.local.settings)


def test_a_session_id_that_is_used_again_is_not_ours(place: Place) -> None:
    job = place.run()
    session = place.program(job).record.session
    assert session is not None
    assert find_members(session)
    assert find_members(replace(session, began=session.began - 1)) == []
    assert find_members(replace(session, boot="another")) == []
    assert session.id in list_sessions()


def test_a_tar_archive_does_not_reach_out_of_its_folder(place: Place, tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(PROGRAMS / "stepping.py", "../../escaped.py")
    with pytest.raises(EngineRefusedError, match="the archive cannot be unpacked"):
        place.start(file=archive, entry="bin/job")
    assert not list(place.folder.rglob("escaped.py"))
    assert [each.name for each in (place.folder / "programs").iterdir()] == []


def test_a_program_that_leaves_its_session_is_ended_all_the_same(
    place: Place, tmp_path: Path
) -> None:
    program = tmp_path / "daemon.py"
    source = (PROGRAMS / "stepping.py").read_text()
    program.write_text(
        source.replace("import time\n", "import time\nos.fork() and os._exit(0)\nos.setsid()\n", 1)
    )
    job = place.run(file=program)
    started = place.program(job)
    wait_for(lambda: started.members.find(started.record.session), "its process")
    place.engine.cancel(job)
    place.await_state(job, RunState.CANCELED)
    assert not place.program(job).alive


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give programs other users")
def test_each_program_may_have_a_user_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of two programs none reads the other's files; the agent, by its group, reads the states."""
    folder = Path("/tmp") / f"speck-test-{uuid4().hex[:8]}"
    folder.mkdir(mode=0o755)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    users = pick_users()
    local = LocalRunner(folder, uids=users, python=python)
    place = Place(folder, local, ProcessEngine(Target("", agent=LocalChannel(folder))))
    try:
        one, other = place.run(), place.run()
        uids = [Path(f"/proc/{place.main(job).pid}").stat().st_uid for job in (one, other)]
        assert tuple(sorted(uids)) == users
        run, state = folder / f"programs/{one}/run", folder / f"programs/{one}/state"
        assert run.stat().st_mode & 0o007 == 0
        assert (run / "own").stat().st_mode & 0o077 == 0
        assert state.stat().st_mode & 0o007 == 0
        assert (state / "starts").stat().st_gid == folder.stat().st_gid
        with pytest.raises(EngineRefusedError, match="no user is free for it"):
            place.start()
        location = place.stop(one).location
        assert location is not None
        follower = place.run(state=location)
        assert int(place.starts(follower)[-1]) > 0, "it reads its copy"
        assert Path(f"/proc/{place.main(follower).pid}").stat().st_uid in uids, "it is free again"
        assert (folder / f"programs/{one}/state/starts").stat().st_uid == 0
    finally:
        local.stop()
        shutil.rmtree(folder)


def test_programs_may_have_control_groups(open_place: Open) -> None:
    root = find_root()
    if root is None:
        pytest.xfail("this machine lets nobody make control groups of version 2")
    folder = root / f"speck-test-{uuid4().hex[:8]}"
    place = open_place(groups=folder)
    try:
        job = place.run("--child")
        assert len((folder / job / "cgroup.procs").read_text().split()) == 3
        place.local.leave()
        place.local.come()
        place.engine.cancel(job)
        place.await_state(job, RunState.CANCELED)
        assert not (folder / job).exists()
        watched = [] if limits_memory(folder) else ["memory of programs"]
        settings = [each.setting for each in place.engine.check()]
        assert settings == ["users of programs", *watched]
    finally:
        place.local.leave()
        folder.rmdir()


def test_what_programs_have_used_does_not_fall_when_they_end(place: Place) -> None:
    """The site's CPU time is a counter; that of a program begins anew with each start."""
    job = place.run()

    def used() -> float:
        return place.engine.measure([job]).cpu_ms or 0.0

    before = wait_for(used, "CPU time")
    send([place.main(job)], signal.SIGKILL)
    wait_for(lambda: len(place.starts(job)) == 2, "another start", 30)
    wait_for(lambda: place.engine.measure([job]).jobs, "figures of it")
    assert used() >= before
    place.engine.cancel(job)
    place.await_state(job, RunState.CANCELED)
    wait_for(lambda: used() >= before, "the sum")
