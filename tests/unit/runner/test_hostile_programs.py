"""Programs that try to make the runner, which is root, write, delete or give away what is not
theirs: by links where it writes, and by folders that nobody can walk through."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from speck.model.observation import RunState
from speck.runner import program as life
from speck.runner.claims import raise_checkpoint, read_checkpoint
from speck.runner.files import delete_folder, write_json
from speck.runner.owners import give_state, make_run, take_back
from speck.runner.processes import send
from speck.runner.starting import renew_credentials
from tests.runner_places import SHARED_GID, USER, Place, as_root
from tests.runners import PROGRAMS
from tests.waiting import wait_for

TRAPS = """
import contextlib, os, shutil
home, folder = os.environ["HOME"], os.environ["SPECK_STATE_DIR"]
victim, run = os.path.abspath(folder + "/../../../victim"), os.path.dirname(home)

def lay(path, target):
    with contextlib.suppress(OSError):
        if os.path.lexists(path) and not os.path.islink(path):
            os.rename(path, path + ".old")
        os.symlink(target, path)

def trap():
    for place in (home, run):
        for name in ("credentials", "own", "spark"):
            lay(f"{place}/{name}", victim)
        for name in ("start.json.new", "start.json", "other"):
            lay(f"{place}/{name}", f"{victim}/file")
    lay(f"{folder}/.checkpoint.new", f"{victim}/file")
    lay(f"{folder}/elsewhere", victim)

trap()
"""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    return make_victim(tmp_path / "victim")


def make_victim(folder: Path) -> Path:
    """What a program would like to have: root's folder, with a file."""
    folder.mkdir()
    (folder / "file").write_text("precious")
    (folder / "file").chmod(0o600)
    return folder


def describe(victim: Path) -> list[tuple[str, int, int, int]]:
    everything = [victim, *sorted(victim.rglob("*"))]
    stats = [(each.name, each.lstat()) for each in everything]
    return [(name, s.st_mode, s.st_uid, s.st_gid) for name, s in stats]


@as_root
def test_links_where_the_runner_writes_lead_it_nowhere(
    isolated: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the program runs, as it starts again, as it is stopped, and as its user is freed."""
    renewed = []

    def renew(*args: Any) -> None:
        renew_credentials(*args)
        renewed.append(args)

    monkeypatch.setattr(life, "_RENEW_S", 0.0)
    monkeypatch.setattr(life, "renew_credentials", renew)
    victim = make_victim(isolated.folder / "victim")
    before = describe(victim)
    program = tmp_path / "trapping.py"
    source = (PROGRAMS / "stepping.py").read_text()
    assert "import argparse\n" in source
    hostile = source.replace("while not over:\n", "while not over:\n    trap()\n", 1)
    hostile += 'lay(f"{state}/checkpoint.new", f"{victim}/file")\n'
    program.write_text(hostile.replace("import argparse\n", f"import argparse\n{TRAPS}", 1))
    job = isolated.run(file=program)
    folder = isolated.folder / f"programs/{job}"
    assert os.readlink(folder / "state/elsewhere").endswith("/victim"), "the traps are there"
    wait_for(lambda: renewed, "its credentials to be renewed", 30)
    send([isolated.main(job)], signal.SIGKILL)
    wait_for(lambda: len(isolated.starts(job)) == 2, "another start", 30)
    isolated.await_state(job, RunState.RUNNING)
    assert isolated.stop(job).failure is None
    wait_for(lambda: not (folder / "run").exists(), "its user to be free")
    assert describe(victim) == before
    assert (victim / "file").read_text() == "precious"
    assert (folder / "state").stat().st_uid == 0


@as_root
def test_a_program_reads_what_the_runner_writes_for_it_and_cannot_change_it(
    isolated: Place,
) -> None:
    (isolated.folder / "credentials/own").write_text("user=a\naddress=tcp://own:1883\n")
    job = isolated.run("--source-broker", "tcp://own:1883")
    run = isolated.folder / f"programs/{job}/run"
    for path in (run, run / "credentials", run / "credentials/own", run / "start.json"):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (0, status.st_gid)
        assert status.st_gid in (isolated.local.settings.uids or ())
        assert status.st_mode & 0o027 == 0, path
    assert isolated.stop(job).failure is None


@as_root
def test_a_program_reaches_its_own_folders_and_no_others_whatever_the_umask(
    isolated: Place, tmp_path: Path
) -> None:
    """The agent may have made the state folder for itself; orders hold arguments of other jobs."""
    isolated.local.leave()
    isolated.folder.chmod(0o700)
    (isolated.folder / "engine").chmod(0o755)
    program = tmp_path / "looking.py"
    text = (
        "import os\n"
        f"engine = '{isolated.folder}/engine'\n"
        "seen = [os.access(each, os.R_OK) for each in (engine, engine + '/status.json')]\n"
        "open(os.environ['SPECK_STATE_DIR'] + '/seen', 'w').write(repr(seen))\n"
    )
    program.write_text(text + (PROGRAMS / "stepping.py").read_text())
    before = os.umask(0o007)
    try:
        isolated.local.come()
        job = isolated.run(file=program)
    finally:
        os.umask(before)
    seen = isolated.folder / f"programs/{job}/state/seen"
    assert seen.read_text() == "[False, False]"
    assert isolated.stop(job).failure is None


@as_root
def test_what_programs_share_is_of_a_group_that_all_have(isolated: Place, tmp_path: Path) -> None:
    """As a local archive, which a job goes on with after a move, under another user."""
    shared = isolated.folder / "shared"
    shared.mkdir()
    os.chown(shared, -1, SHARED_GID)
    shared.chmod(0o2770)
    program = tmp_path / "sharing.py"
    text = f"import os; os.makedirs('{shared}/day', exist_ok=True)\n"
    text += f"open('{shared}/day/file', 'a').write(f'{{os.getuid()}} ')\n"
    program.write_text(text + (PROGRAMS / "stepping.py").read_text())
    jobs = isolated.run(file=program), isolated.run(file=program)
    users = isolated.local.settings.uids
    assert tuple(map(int, (shared / "day/file").read_text().split())) == users
    assert (shared / "day").stat().st_mode & 0o7777 == 0o2770
    for job in jobs:
        assert isolated.stop(job).failure is None


@as_root
def test_a_checkpoint_on_request_reaches_a_program_whatever_the_runners_umask(
    isolated: Place,
) -> None:
    job = isolated.run()
    before = os.umask(0o077)
    try:
        isolated.engine.save(job, None, "abc")
        assert isolated.await_progress(job, "abc").failure is None
    finally:
        os.umask(before)


def test_the_number_of_a_state_is_written_through_no_link(tmp_path: Path, victim: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "checkpoint").write_bytes((6).to_bytes(8, "big"))
    for name in (".checkpoint.new", "checkpoint.new"):
        (state / name).symlink_to(victim / "file")
    before = describe(victim)
    raise_checkpoint(state)
    assert (read_checkpoint(state) or (0, 0))[0] == 7
    (state / "checkpoint").unlink()
    (state / "checkpoint").symlink_to(victim / "file")
    assert read_checkpoint(state) is None, "nor read"
    raise_checkpoint(state)
    assert (read_checkpoint(state) or (0, 0))[0] == 1
    assert describe(victim) == before
    assert (victim / "file").read_text() == "precious"


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.new"])
def test_a_folder_in_the_way_does_not_keep_a_program_from_ending(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "deep").mkdir(parents=True)
    raise_checkpoint(tmp_path)
    assert (read_checkpoint(tmp_path) or (0, 0))[0] == 1


def test_the_highest_number_stays(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b"\xff" * 8)
    raise_checkpoint(tmp_path)
    assert (read_checkpoint(tmp_path) or (0, 0))[0] == (1 << 64) - 1


def test_a_file_is_replaced_through_no_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "start.json.new").symlink_to(victim / "file")
    (tmp_path / "start.json").symlink_to(victim / "file")
    write_json(tmp_path / "start.json", {"a": 1}, mode=0o400)
    assert (victim / "file").read_text() == "precious"
    assert (tmp_path / "start.json").read_text() == '{"a": 1}'
    assert (tmp_path / "start.json").lstat().st_mode & 0o7777 == 0o400


@pytest.fixture
def deep() -> Iterator[Path]:
    """A folder that goes in any case: of one that is nested deeply pytest cannot rid itself."""
    with TemporaryDirectory() as name:
        yield Path(name)
        subprocess.run(["rm", "-rf", *Path(name).iterdir()], check=True)


def nest(folder: Path, levels: int) -> None:
    """Folders in folders, more than a path can name."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("x", dir_fd=descriptor)
        inner = os.open("x", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


def test_folders_are_deleted_however_deeply_they_are_nested(deep: Path) -> None:
    folder = deep / "folder"
    folder.mkdir()
    nest(folder, 3000)
    delete_folder(folder)
    assert not folder.exists()
    delete_folder(folder)


@as_root
def test_a_user_is_freed_whatever_its_program_has_left(deep: Path, victim: Path) -> None:
    before = describe(victim)
    (deep / "state").mkdir()
    (deep / "state/file").write_text("a")
    make_run(deep, USER)
    give_state(deep / "state", USER)
    assert (deep / "state/file").stat().st_uid == 61000
    (deep / "state/link").symlink_to(victim / "file")
    (deep / "state/folder").symlink_to(victim)
    (deep / "run/own/link").symlink_to(victim)
    nest(deep / "run/own", 2000)
    nest(deep / "state", 2000)
    take_back(deep)
    assert not (deep / "run").exists()
    assert (deep / "state").stat().st_uid == 0
    assert (deep / "state/link").lstat().st_uid == 0
    assert describe(victim) == before
