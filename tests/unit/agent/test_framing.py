from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speck.agent.framing import CorruptError, Stream, unpack
from speck.agent.state_files import StateFiles
from speck.errors import PermanentError

Contents = dict[str, bytes]


def stream_of(folder: Path, contents: Contents) -> Stream:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    folder.mkdir(exist_ok=True)
    return Stream(StateFiles(folder))


def read_all(stream: Stream, most: int = 1000) -> bytes:
    content = b""
    while piece := stream.read(len(content), most):
        content += piece
    return content


def found_in(folder: Path) -> Contents:
    return {
        f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()
    }


SOME: Contents = {"_metadata": b"m" * 100, "a/b": b"", "z": bytes(range(256)) * 700}


@given(
    sizes=st.lists(st.integers(0, 70_000), max_size=4),
    most=st.integers(50, 200_000),
    jump=st.floats(0, 1),
)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_files_read_in_any_pieces_from_any_place_are_the_same(
    tmp_path: Path, sizes: list[int], most: int, jump: float
) -> None:
    shutil.rmtree(tmp_path / "from", ignore_errors=True)
    contents = {f"f{i}": bytes([i % 256]) * size for i, size in enumerate(sizes)}
    stream = stream_of(tmp_path / "from", contents)
    whole = read_all(stream, most)
    assert len(whole) == stream.size
    offset = int(jump * stream.size)
    assert stream.read(offset, most) == whole[offset : offset + most]
    (tmp_path / "stream").write_bytes(whole)
    assert unpack(tmp_path / "stream", tmp_path / "to") == len(contents)
    assert found_in(tmp_path / "to") == contents


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    whole = read_all(stream_of(tmp_path / "from", {"_metadata": b"12345", "f": b"abc"}))
    for at in range(len(whole)):
        (tmp_path / "stream").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptError):
            unpack(tmp_path / "stream", tmp_path / "to")
        assert not (tmp_path / "to").exists()


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = read_all(stream_of(tmp_path / "from", {"_metadata": b"12345"}))
    for length in (*range(len(whole)), len(whole) + 1):
        (tmp_path / "stream").write_bytes((whole + b"x")[:length])
        with pytest.raises(CorruptError):
            unpack(tmp_path / "stream", tmp_path / "to")
        assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", "a//b", ".", "", "a/./b", "a\\b", "a\0b", 7, None]
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: object) -> None:
    head = json.dumps({"file": name, "bytes": 1}).encode()
    (tmp_path / "stream").write_bytes(b"speck-state 1\n" + head + b"\nx")
    with pytest.raises(CorruptError, match=r"^cannot (accept a file|read the received state)"):
        unpack(tmp_path / "stream", tmp_path / "in" / "to")
    assert sorted(path.name for path in tmp_path.iterdir()) in (["in", "stream"],)
    assert list((tmp_path / "in").iterdir()) == []


def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, SOME)
    (tmp_path / "z").write_bytes(b"short")
    with pytest.raises(PermanentError, match="was truncated"):
        read_all(stream)
    (tmp_path / "z").unlink()
    with pytest.raises(PermanentError, match=r"^cannot send .*/z: No such file"):
        read_all(stream)


@pytest.mark.parametrize("swapped", ["z", "a"])
def test_a_link_that_is_swapped_in_is_not_followed(tmp_path: Path, swapped: str) -> None:
    """The folder belongs to a job: it could have the agent send any file that this may read."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "b").write_bytes(b"secret")
    stream = stream_of(tmp_path / "state", {"a/b": b"public", "z": b"public"})
    (tmp_path / "state" / swapped).rename(tmp_path / "before")
    (tmp_path / "state" / swapped).symlink_to(
        tmp_path / ("secrets/b" if swapped == "z" else "secrets")
    )
    with pytest.raises(PermanentError, match=r"^cannot send .*/(a/b|z): "):
        read_all(stream)


def test_a_state_whose_folder_is_swapped_is_sent_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "z").write_bytes(b"secret")
    stream = stream_of(tmp_path / "state", {"z": b"public"})
    (tmp_path / "state").rename(tmp_path / "before")
    (tmp_path / "state").symlink_to(tmp_path / "secrets")
    content = read_all(stream)
    assert b"public" in content
    assert b"secret" not in content


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_that_is_swapped_in_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    stream = stream_of(tmp_path, {"z": b"public"})
    (tmp_path / "z").unlink()
    make(tmp_path / "z")
    with pytest.raises(PermanentError, match="is not a regular file"):
        read_all(stream)


def test_a_folder_that_is_reached_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real" / "state").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermanentError, match=r"^cannot send .*/link/state: Not a directory"):
        StateFiles(tmp_path / "link" / "state")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with StateFiles(tmp_path) as files:
        stream = Stream(files)
        read_all(stream)
    (tmp_path / "link").symlink_to("/etc")
    for _ in range(3):
        with pytest.raises(PermanentError, match="is not a regular file"):
            StateFiles(tmp_path)
        with pytest.raises(PermanentError, match="No such file"):
            StateFiles(tmp_path / "no" / "folder")
    assert len(os.listdir("/proc/self/fd")) == before


def test_reading_past_the_end_says_so(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, SOME)
    assert stream.read(stream.size, 10) == b""
    with pytest.raises(PermanentError, match="there are"):
        stream.read(stream.size + 1, 10)
