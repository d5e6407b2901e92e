"""Files that commands write: completely or not at all, and not beyond the room of their disk."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from speck.cli.writing import WholeFiles, write_whole
from speck.errors import PermanentError, UnreachableError
from tests.unit.cli.conftest import Run, Server


def limit_room(monkeypatch: pytest.MonkeyPatch, free: int, total: int = 1 << 40) -> None:
    disk = SimpleNamespace(total=total, used=0, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)


def failing(error: Exception) -> Iterator[bytes]:
    yield b"half"
    raise error


def test_a_disk_that_tells_no_size_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_room(monkeypatch, 0, total=0)
    write_whole(tmp_path / "a", iter([b"whole"]), 5)
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_what_has_no_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_room(monkeypatch, 10)
    read: list[bytes] = []
    pieces = (read.append(piece) or piece for piece in [b"x" * 11])  # type: ignore[func-returns-value]
    with pytest.raises(PermanentError) as error:
        write_whole(tmp_path / "a", pieces, 11)
    assert str(error.value) == (
        f"cannot write {tmp_path}/a: it has 11 bytes, and 10 are free on its disk; free space"
        " there, or name another place; nothing was written"
    )
    assert read == [] and list(tmp_path.iterdir()) == []
    assert write_whole(tmp_path / "a", [b"x" * 10], 10) == 10
    assert write_whole(tmp_path / "b", [b"x" * 11], None) == 11, "its size was not known"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), UnreachableError("cut")]
)
def test_what_fails_half_way_leaves_nothing_and_the_file_before_as_it_was(
    tmp_path: Path, error: Exception
) -> None:
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises((PermanentError, UnreachableError)) as raised:
        write_whole(tmp_path / "a", failing(error))
    if isinstance(error, OSError):
        assert str(raised.value) == f"cannot write {tmp_path}/a: No space left on device"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_several_files_appear_together(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with pytest.raises(UnreachableError), WholeFiles() as files:
        files.add(folder / "a", [b"1"], make_folders=True)
        assert not (folder / "a").exists()
        files.add(folder / "b", failing(UnreachableError("cut")), make_folders=True)
    assert list(tmp_path.iterdir()) == [], "no folder was there before"
    with WholeFiles() as files:
        for name in "ab":
            files.add(folder / name, [b"1"], make_folders=True)
        files.publish()
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_a_backup_and_an_export_need_room(
    speck: Run, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    with monkeypatch.context() as small:
        small.setattr("speck.cli.writing.shutil", SimpleNamespace(disk_usage=_no_room))
        saved = speck("backup", "saved.gz")
        exported = speck("metrics", "export", "all")
    assert (saved.exit_code, exported.exit_code) == (1, 1)
    assert "cannot write saved.gz: it has " in saved.stderr and "5 are free" in saved.stderr
    assert "cannot write all/tasks.parquet: it has " in exported.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def _no_room(path: Path) -> SimpleNamespace:
    return SimpleNamespace(total=1 << 40, free=5)


def test_a_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", lambda *names: pytest.fail(f"replaces {names}"))
        link = tmp_path / "null"
        link.symlink_to("/dev/null")
        for device in (Path("/dev/null"), link):
            assert write_whole(device, [b"abc", b"d"], 4) == 4
    assert link.is_symlink() and link.is_char_device()
    assert list(tmp_path.iterdir()) == [link]


def test_a_pipe_gets_all_pieces(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(pipe.read_bytes)
        assert write_whole(pipe, [b"a" * 300_000, b"b"], None) == 300_001
        assert taken.result() == b"a" * 300_000 + b"b"
    assert pipe.is_fifo()


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for there in (True, False):
        target, link = (tmp_path / folder / f"{there}" for folder in ("elsewhere", "."))
        if there:
            target.write_bytes(b"before")
        link.symlink_to(target)
        write_whole(link, [b"x"])
        assert link.is_symlink() and target.read_bytes() == b"x"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    bound = socket.socket(socket.AF_UNIX)
    with bound:
        bound.bind(str(tmp_path / "socket"))
        (tmp_path / "folder").mkdir()
        for name, what in (("socket", "a socket"), ("folder", "a folder")):
            with pytest.raises(PermanentError) as error:
                write_whole(tmp_path / name, [b"x"])
            place = tmp_path / name
            assert str(error.value) == f"cannot write {place}: it is {what}; name a file"
    assert {path.name for path in tmp_path.iterdir()} == {"socket", "folder"}
