"""What is left of a program that has ended: nothing that holds a user, a slot or a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from speck.model.observation import RunState
from speck.runner import claims, processes
from speck.runner.claims import strip
from speck.runner.owners import give_state, list_users, make_run
from speck.runner.processes import list_recent_sessions, measure_memory, read_process, send
from tests.runner_places import USER, Open, Place, as_root
from tests.runners import PROGRAMS
from tests.unit.runner.test_runner_trouble import failing
from tests.waiting import wait_for

STEPPING = (PROGRAMS / "stepping.py").read_text()


def add_lines(file: Path, lines: str) -> Path:
    """The program that counts its steps, with lines to begin with."""
    file.write_text(STEPPING.replace("import argparse\n", f"import argparse\n{lines}\n", 1))
    return file


def test_what_an_end_has_left_is_deleted_by_the_next_runner(place: Place) -> None:
    """As after one that died once the end was recorded."""
    job = place.run()
    folder = place.folder / f"programs/{job}"
    place.engine.cancel(job)
    place.await_state(job, RunState.CANCELED)
    place.local.leave()
    (folder / "artifact").write_text("left")
    (folder / "run/credentials").mkdir(exist_ok=True)
    (folder / "run/credentials/broker").write_text("password=a")
    place.local.come()
    wait_for(lambda: not (folder / "artifact").exists(), "the artifact to go", 30)
    wait_for(lambda: not (folder / "run/credentials").exists(), "the credentials to go", 30)
    assert place.engine.status(job) is RunState.CANCELED


def test_what_cannot_be_deleted_at_an_end_is_deleted_later(place: Place) -> None:
    job = place.run()
    with failing(claims, "drop_program") as tries:
        place.engine.cancel(job)
        wait_for(lambda: len(tries) > 1, "two tries", 30)
        place.await_state(job, RunState.CANCELED)
    folder = place.folder / f"programs/{job}"
    wait_for(lambda: not (folder / "artifact").exists(), "the artifact to go", 30)


@as_root
def test_of_a_program_that_is_forgotten_the_user_is_free(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/file").write_text("a")
    make_run(tmp_path, USER)
    give_state(tmp_path / "state", USER)
    assert list_users(tmp_path) == {USER[0]}
    strip(tmp_path)
    assert list_users(tmp_path) == set()
    assert (tmp_path / "state/file").stat().st_uid == 0


@as_root
def test_what_has_left_its_program_ends_with_it_all_the_same(
    isolated: Place, tmp_path: Path
) -> None:
    """It would have the user of the next program, and so its files."""
    lines = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    open(os.environ['SPECK_STATE_DIR'] + '/left', 'w').write(str(os.getpid()))\n"
        "    os.closerange(0, 1000)\n"
        "    time.sleep(600)\n"
    )
    job = isolated.run(file=add_lines(tmp_path / "leaving.py", lines))
    folder = isolated.folder / f"programs/{job}"
    left = int(wait_for(lambda: (folder / "state/left").read_text(), "its process", 30))
    assert isolated.stop(job).failure is None
    wait_for(lambda: read_process(left) is None, "what it has left to end", 30)
    wait_for(lambda: not list_users(folder), "its user to be free", 30)


def test_what_the_kernel_killed_before_is_no_reason_of_a_later_crash(
    open_place: Open, tmp_path: Path
) -> None:
    place = open_place(groups=tmp_path / "groups")
    job = place.run()
    place.local.leave()
    (tmp_path / "groups" / job / "memory.events").write_text("oom 3\noom_kill 3\n")
    place.local.come()
    send([place.main(job)], signal.SIGKILL)
    wait_for(lambda: place.failures(job), "the failure", 30)
    assert place.failures(job)[0].startswith("it was ended by SIGKILL")


def test_a_shim_does_not_stay_as_a_zombie(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = place.run()
    program = place.program(job)
    assert program.record.session is not None
    assert program._shim is not None
    pid = program.record.session.id
    monkeypatch.setattr(program._shim, "poll", lambda: None)  # as one that ends just after
    assert place.stop(job).failure is None
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the shim to be gone", 10)


def test_a_program_has_ended_though_something_that_it_has_left_holds_its_lease(
    open_place: Open, tmp_path: Path
) -> None:
    place = open_place(stop_s=0.5)
    program = add_lines(tmp_path / "leaving.py", 'import os\nos.system("sleep 600 &")')
    job = place.start("--records", "3", file=program)
    place.await_state(job, RunState.FINISHED)
    assert not place.program(job).alive
    assert place.engine.has_finished(job)


def test_one_look_at_all_processes_is_enough_for_all_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = list_recent_sessions()
    assert list_recent_sessions() is first
    monkeypatch.setattr(processes, "_RECENT_S", 0.0)
    assert list_recent_sessions() is not first
    assert os.getsid(0) in list_recent_sessions()


FORKS = """
import os, sys
memory = bytearray(os.urandom(1 << 20)) * 60
for _ in range(2):
    if os.fork() == 0:
        break
else:
    print("ready", flush=True)
os.read(0, 1)
"""


def test_what_forks_share_counts_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        pids = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        members = [p for pid in (parent.pid, *map(int, pids)) if (p := read_process(pid))]
        assert len(members) == 3
        together = sum(process.bytes for process in members)
        assert together > 180 << 20
        assert 60 << 20 < measure_memory(members) < 90 << 20
        send(members, signal.SIGKILL)
