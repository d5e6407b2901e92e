"""A runner on a disk that is full or damaged, and programs that end in unlucky ways."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from speck.errors import DuplicateJobError, EngineRefusedError
from speck.model.observation import RunState
from speck.runner import claims
from speck.runner import runner as loop
from speck.runner.claims import read_checkpoint
from speck.runner.processes import read_process
from tests.runner_places import Open, Place
from tests.runners import PROGRAMS
from tests.waiting import wait_for

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def failing(place: object, name: str, when: Callable[..., bool] = lambda *_: True) -> Iterator[Any]:
    """The disk is full for one kind of write; yields how often it was tried in vain."""
    tries: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        real = getattr(place, name)

        def write(*args: Any, **more: Any) -> Any:
            if when(*args):
                tries.append(args)
                raise FULL
            return real(*args, **more)

        patch.setattr(place, name, write)
        yield tries


def read_stored(place: Place, job: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (place.folder / f"programs/{job}/record.json").read_bytes()
    )
    return content


def test_an_end_is_known_only_once_it_is_stored(place: Place) -> None:
    """A runner that starts again would not know it, and begin the program once more."""
    job = place.run()
    with failing(claims, "store_record", lambda _, record: record.over) as tries:
        place.engine.cancel(job)
        wait_for(lambda: len(tries) > 1, "two tries to store the end", 30)
        assert not place.program(job).over
    place.await_state(job, RunState.CANCELED)
    assert read_stored(place, job)["state"] == "canceled"
    place.local.leave()
    place.local.come()
    assert place.engine.status(job) is RunState.CANCELED
    assert len(place.starts(job)) == 1


def test_a_program_that_has_been_stopped_does_not_start_again_for_want_of_space(
    place: Place,
) -> None:
    job = place.run()
    with failing(claims, "raise_checkpoint") as tries:
        place.engine.stop(job, None, "abc")
        wait_for(lambda: len(tries) > 1, "two tries to number the state", 30)
    assert place.await_progress(job, "abc").failure is None
    assert len(place.starts(job)) == 1
    assert place.engine.has_finished(job) is False


def test_a_start_that_cannot_be_recorded_is_made_again(place: Place) -> None:
    """What waits to begin does not count as running, and ends."""
    with failing(claims, "store_record", lambda _, record: record.session is not None) as tries:
        job = place.start()
        wait_for(lambda: len(tries) > 1, "two tries to start it", 30)
        assert place.engine.status(job) is RunState.STARTING
        assert not place.program(job).holds_slots
    place.await_state(job, RunState.RUNNING)
    assert place.starts(job) == ["0"]
    assert len(place.members(job)) == 2, "its shim, and itself"


def test_a_runner_that_can_write_nothing_sees_to_its_programs(place: Place) -> None:
    job = place.run()
    with failing(loop, "write_json") as tries:
        wait_for(lambda: len(tries) > 1, "two tries to write the status", 30)
        main = place.main(job)
        os.kill(main.pid, 9)
        wait_for(lambda: len(place.starts(job)) == 2, "another start", 30)
        assert place.local.is_there
    place.await_state(job, RunState.RUNNING)


@pytest.mark.parametrize("lost", ["status.json", "answers"])
def test_a_runner_is_believed_though_the_clock_was_set_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """As after a reboot of a machine that has no clock of its own, whose disk has lost something
    as it went down."""
    job = place.run()
    place.local.leave()
    path = place.folder / "engine" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    monkeypatch.setattr(loop, "now_ms", lambda: claims.now_ms() - 3_600_000)
    place.local.come()
    assert place.engine.status(job) is RunState.RUNNING
    assert place.stop(job).failure is None


def test_an_order_that_cannot_be_recorded_has_no_effect(place: Place) -> None:
    job = place.run()
    with failing(claims, "store_record"), pytest.raises(Exception, match="No space left"):
        place.engine.cancel(job)
    before = place.step(job)
    wait_for(lambda: place.step(job) > before, "more steps")
    assert place.engine.status(job) is RunState.RUNNING


def test_the_log_makes_room_for_what_has_to_be_recorded(place: Place) -> None:
    job = place.run()
    old = place.folder / f"programs/{job}/log.1"
    old.write_text("x" * 100)
    with failing(claims, "store_record", lambda *_: old.exists()):
        place.engine.cancel(job)
        place.await_state(job, RunState.CANCELED)
    assert not old.exists()


def test_a_program_that_ends_is_started_again_though_it_has_left_something_running(
    place: Place, tmp_path: Path
) -> None:
    """What has inherited the lease holds it."""
    file = tmp_path / "leaving.py"
    text = (PROGRAMS / "stepping.py").read_text()
    assert "import signal\n" in text
    file.write_text(text.replace("import signal\n", 'import signal\nos.system("sleep 600 &")\n', 1))
    job = place.run("--fail-at", "4", file=file)
    wait_for(lambda: len(place.starts(job)) > 1, "another start", 30)
    assert place.failures(job)[-1].startswith("it ended with status 3")


def test_a_program_whose_record_is_damaged_does_not_start_again(place: Place) -> None:
    ended, running = place.run(), place.run()
    place.engine.cancel(ended)
    place.await_state(ended, RunState.CANCELED)
    place.local.leave()
    for job in (ended, running):
        (place.folder / f"programs/{job}/record.json").write_text("{")
    place.local.come()
    for job in (ended, running):
        place.await_state(job, RunState.CANCELED)
        assert not place.program(job).alive
        assert len(place.starts(job)) == 1
    assert place.failures(running) == ["its record is damaged; it is not started again"]


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(file.read_bytes())
    change(content)
    file.write_text(json.dumps(content))


def test_a_program_whose_claim_is_damaged_ends_and_keeps_its_state(place: Place) -> None:
    damages: list[Callable[[dict[str, Any]], Any]] = [
        lambda claim: claim.clear(),
        lambda claim: claim.pop("name"),
        lambda claim: claim.update(args=7),
    ]
    jobs, ended, well = [place.run() for _ in damages], place.run(), place.run()
    place.engine.cancel(ended)
    place.await_state(ended, RunState.CANCELED)
    place.local.leave()
    for job, damage in zip([*jobs, ended], [*damages, dict.clear], strict=True):
        edit(place.folder / f"programs/{job}/claim.json", damage)
    place.local.come()
    for job in jobs:
        place.await_state(job, RunState.CANCELED)
        assert not place.program(job).alive
        assert place.failures(job) == ["its claim is damaged; it is not started again"]
        assert place.engine.newest_state(job) is not None
    assert place.engine.status(ended) is RunState.CANCELED
    assert place.failures(ended) == []
    assert place.engine.status(well) is RunState.RUNNING


def test_what_a_newer_runner_has_stored_besides_is_left_aside(place: Place) -> None:
    job = place.run()
    pid = place.main(job).pid
    place.local.leave()
    for name in ("claim.json", "record.json"):
        edit(place.folder / f"programs/{job}" / name, lambda content: content.update(novel=[1]))
    edit(
        place.folder / f"programs/{job}/record.json",
        lambda record: record["session"].update(novel=1),
    )
    place.local.come()
    assert place.engine.status(job) is RunState.RUNNING
    assert place.main(job).pid == pid
    assert place.stop(job).failure is None


def test_whatever_goes_wrong_with_one_program_the_runner_sees_to_the_others(place: Place) -> None:
    job, other = place.run(), place.run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place.program(job), "tick", lambda _: 1 / 0)
        os.kill(place.main(other).pid, 9)
        wait_for(lambda: len(place.starts(other)) == 2, "another start", 30)
        patch.setattr(loop, "make_claim", lambda *_: 1 / 0)
        with pytest.raises(EngineRefusedError, match="ZeroDivisionError"):
            place.start()
        assert place.local.is_there
    place.await_state(other, RunState.RUNNING)


def test_a_damaged_archive_is_refused_and_the_runner_lives_on(place: Place, tmp_path: Path) -> None:
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(PROGRAMS / "stepping.py", "bin/job")
    content = archive.read_bytes()
    for size in (len(content) // 2, 40):
        archive.write_bytes(content[:size] + b"\xff" * 200)
        with pytest.raises(EngineRefusedError, match="the archive cannot be unpacked"):
            place.start(file=archive, entry="bin/job")
    archive.write_bytes(content)
    with pytest.raises(EngineRefusedError, match="the archive has no file 'bin/other'"):
        place.start(file=archive, entry="bin/other")
    place.run()
    assert place.local.is_there


def test_all_that_ended_a_moment_ago_is_shown(
    open_place: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: what has become of them is asked about one by one."""
    monkeypatch.setattr(loop, "_ENDED_SHOWN", 1)
    place = open_place()
    jobs = [place.run() for _ in range(3)]
    for job in jobs:
        place.engine.cancel(job)
    for job in jobs:
        place.await_state(job, RunState.CANCELED)
    monkeypatch.setattr(loop, "_ENDED_SHOWN_S", 0.0)
    wait_for(lambda: [place.engine.status(job) for job in jobs].count(None) == 2, "the others", 30)


def test_a_process_is_known_whatever_it_calls_itself() -> None:
    code = r"open('/proc/self/comm', 'wb').write(b'\xff\xfe) x'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        known = read_process(process.pid)
        process.communicate(b"\n")
    assert known is not None
    assert known.parent == os.getpid()


def test_of_a_program_that_ended_long_ago_its_claim_and_its_state_are_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = place.submission()
    job = submission.engine_job_id
    place.engine.submit(submission)
    place.await_state(job, RunState.RUNNING)
    folder = place.folder / f"programs/{job}"
    assert place.stop(job).failure is None
    assert not (folder / "artifact").exists()
    assert (folder / "log").exists()
    spent = place.local.runner._sum_cpu()
    for name, value in (("_ENDED_SHOWN", 0), ("_ENDED_SHOWN_S", 0.0), ("_CLEAR_S", 0.0)):
        monkeypatch.setattr(loop, name, value)
    left = {"claim.json", "record.json", "state"}
    wait_for(lambda: {each.name for each in folder.iterdir()} == left, "the rest to go", 30)
    wait_for(lambda: job not in place.local.runner.programs, "it to be forgotten", 30)
    assert place.local.runner._sum_cpu() == spent, "what was counted stays counted"
    with pytest.raises(DuplicateJobError):
        place.engine.submit(submission)
    place.local.leave()
    place.local.come()
    assert (folder / "state/checkpoint").exists()
    follower = place.run(state=f"file://{folder}/state")
    assert int(place.starts(follower)[-1]) > 0


def test_logs_of_many_programs_that_fail_do_not_hide_the_site(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent takes a status of 1 MiB."""
    job = place.run("--fail-at", "10")
    wait_for(lambda: place.engine.exceptions(job), "a failure", 30)
    assert "started at 0" in place.engine.exceptions(job)[-1].trace
    again = place.run("--fail-at", "10")
    wait_for(lambda: place.engine.exceptions(again), "a failure", 30)
    for each in (job, again):
        place.engine.cancel(each)
        place.await_state(each, RunState.CANCELED)
    monkeypatch.setattr(loop, "_LOGS_SHOWN", 1)
    wait_for(lambda: "started" not in place.engine.exceptions(job)[0].trace, "a line only", 30)
    assert place.failures(job)[-1] == "it ended with status 3: cannot go on: step 10"
    assert "started at" in place.engine.exceptions(again)[0].trace, "the newest has more"
    monkeypatch.setattr(loop, "_MOST_SHOWN", 100)
    wait_for(lambda: place.failures(job)[-1] == "it ended with status 3", "none", 30)


def test_figures_alone_take_little_of_a_sites_uplink(
    open_place: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything else is reported at once."""
    place = open_place()
    job, other = place.run(), place.run()
    monkeypatch.setattr(loop, "_BYTES_PER_S", 1)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE_S", 600.0)
    seen = place.step(job)
    wait_for(lambda: place.step(job) > seen, "the status that was due")
    written = (place.folder / "engine/status.json").stat().st_mtime_ns
    state = place.folder / f"programs/{job}/state"
    before = (read_checkpoint(state) or (0, 0))[0]
    wait_for(lambda: (read_checkpoint(state) or (0, 0))[0] > before + 20, "many steps")
    assert (place.folder / "engine/status.json").stat().st_mtime_ns == written
    os.kill(place.main(other).pid, 9)
    wait_for(lambda: place.failures(other), "the failure", 30)
