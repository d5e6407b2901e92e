from __future__ import annotations

import os
from pathlib import Path

import pytest

from binders.flink.layout import LAYOUT
from speck.agent.folder import StateFolder, StateMissingError, open_files
from speck.errors import PermanentError
from tests.agents import write_state

JOB = "ab" * 16


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    (tmp_path / "state").mkdir()
    return StateFolder(tmp_path / "state")


def test_the_engines_ways_to_name_a_state(folder: StateFolder) -> None:
    state = write_state(folder.root / "savepoints" / "a b" / "s-1")
    encoded = str(state).replace(" ", "%20")
    for name in (f"file:{state}", f"file://{state}", str(state), f"file://{encoded}"):
        assert folder.locate(name, LAYOUT) == state


@pytest.mark.parametrize(
    "name",
    [
        "/etc",
        "file:///etc/passwd",
        "{root}",
        "{root}/checkpoints",
        "{root}/other/x",
        "{root}/checkpoints/../../../etc",
        "{root}/savepoints/../../state2/savepoints/x",
        "{root}2/savepoints/x",
        "%2e%2e/%2e%2e/etc/passwd",
        "file:{root}/savepoints/%2e%2e/%2e%2e/%2e%2e/etc",
        "savepoints/link/x",
        "{root}/savepoints/link",
        "",
        "s3://bucket/savepoints/x",
    ],
)
def test_nothing_outside_the_rooms_is_a_state(name: str, folder: StateFolder) -> None:
    outside = write_state(folder.root.with_name("state2") / "savepoints" / "x")
    (folder.root / "savepoints").mkdir()
    (folder.root / "savepoints" / "link").symlink_to(outside)
    path = name.replace("{root}", str(folder.root))
    with pytest.raises(PermanentError, match=r"^cannot use "):
        folder.locate(path, LAYOUT)
    with pytest.raises(PermanentError):
        folder.drop(path, LAYOUT)
    assert (outside / "_metadata").exists()


def test_states_newest_first_by_the_engines_own_number(folder: StateFolder) -> None:
    chk = folder.root / "checkpoints" / JOB
    for number in (9, 10, 2):
        write_state(chk / f"chk-{number}", number)
        os.utime(chk / f"chk-{number}" / "_metadata", (1e9 - number, 1e9 - number))
    write_state(folder.root / "savepoints" / "job" / JOB / "savepoint-ab-1", 11)
    write_state(folder.root / "savepoints" / "job" / ("cd" * 16) / "savepoint-cd-1", 99)
    states = folder.states(JOB, LAYOUT)
    assert [(s.number, s.on_request) for s in states] == [
        (11, True),
        (10, False),
        (9, False),
        (2, False),
    ]
    assert folder.states("ef" * 16, LAYOUT) == []


@pytest.mark.parametrize("content", [b"", b"\x49\x60\x67", b"\0" * 64, None])
def test_what_is_not_complete_is_no_state(content: bytes | None, folder: StateFolder) -> None:
    chk = folder.root / "checkpoints" / JOB / "chk-3"
    chk.mkdir(parents=True)
    (chk / "half").write_bytes(b"half")
    if content is not None:
        (chk / "_metadata").write_bytes(content)
    assert folder.states(JOB, LAYOUT) == []
    with pytest.raises(StateMissingError, match=r"^cannot find a complete state at "):
        folder.state(str(chk), LAYOUT)


def test_a_state_that_needs_files_elsewhere_is_refused(folder: StateFolder) -> None:
    there = f"file:/var/lib/speck/checkpoints/{JOB}"
    shared = f"{there}/shared/1b4e28ba-2fa1-11d2-883f-0016d3cca427".encode()
    state = write_state(folder.root / "checkpoints" / JOB / "chk-1", tail=b"\0\x55" + shared)
    with pytest.raises(PermanentError, match=r"needs .*/shared/1b4e.* lies outside it"):
        open_files(folder.state(str(state), LAYOUT), LAYOUT)


def test_a_record_that_looks_a_little_like_a_path_is_none(folder: StateFolder) -> None:
    state = write_state(folder.root / "checkpoints" / JOB / "chk-1", tail=b"\0http://x/shared/a-b")
    with open_files(folder.state(str(state), LAYOUT), LAYOUT) as files:
        assert [name for name, _ in files.names] == ["_metadata"]


def test_links_do_not_travel(folder: StateFolder) -> None:
    state = write_state(folder.root / "savepoints" / "s" / "1")
    (state / "secret").symlink_to("/etc/passwd")
    with pytest.raises(PermanentError, match="is not a regular file"):
        open_files(folder.state(str(state), LAYOUT), LAYOUT)


def test_what_is_dropped_is_gone_and_may_be_dropped_again(folder: StateFolder) -> None:
    state = write_state(folder.root / "savepoints" / "s" / "1", extra={"file": b"1"})
    folder.drop(f"file://{state}", LAYOUT)
    assert not state.exists()
    folder.drop(f"file://{state}", LAYOUT)
    assert folder.root.exists()


def test_checkpoints_in_a_job_s_own_folder_are_listed_and_sent(
    folder: StateFolder, tmp_path: Path
) -> None:
    write_state(folder.root / "checkpoints" / JOB / "chk-2", 2)
    own = tmp_path / "my own" / JOB
    newest = write_state(own / "chk-5", 5)
    write_state(own / "other", 9)
    for uri in (f"file:{own}", f"file://{own}", str(own), f"file:{str(own).replace(' ', '%20')}"):
        assert folder.states(JOB, LAYOUT, uri)[0].folder == newest
    assert len(folder.states(JOB, LAYOUT, str(own))) == 2
    assert folder.state(f"file:{newest}", LAYOUT, JOB).number == 5
    with pytest.raises(PermanentError, match="not a state below"):
        folder.drop(f"file:{newest}", LAYOUT)


@pytest.mark.parametrize("own", ["{tmp}/away/{job}", "{tmp}/shared", "s3://b/{job}", "{tmp}/{job}"])
def test_a_folder_that_cannot_be_listed_is_not_empty(
    own: str, folder: StateFolder, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / JOB).write_text("a file")
    with pytest.raises(PermanentError, match=r"^cannot list the checkpoints in "):
        folder.states(JOB, LAYOUT, own.format(tmp=tmp_path, job=JOB))


@pytest.mark.parametrize("name", ["{own}/chk-5/../../secret", "{own}/link", "{own}/chk-x", "{own}"])
def test_nothing_else_of_such_a_folder_is_read(
    name: str, folder: StateFolder, tmp_path: Path
) -> None:
    own = tmp_path / JOB
    write_state(own / "chk-5", 5)
    write_state(own / "chk-x", 5)
    (own / "link").symlink_to(write_state(tmp_path / "secret", 6))
    with pytest.raises(PermanentError, match=r"^cannot use "):
        folder.state(name.format(own=own), LAYOUT, JOB)
