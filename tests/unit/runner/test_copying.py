from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from speck.errors import PermanentError
from speck.runner.copying import copy_state


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "deep").mkdir(parents=True)
    return folder


def test_a_database_is_copied_with_what_its_journal_holds(base: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(base / "deep/db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA wal_autocheckpoint=0")
        database.execute("CREATE TABLE t (n)")
        database.execute("INSERT INTO t VALUES (7)")
        database.commit()
        assert (base / "deep/db-wal").stat().st_size > 0, "as a program that was killed leaves it"
        copy_state(base, tmp_path / "copy")

    assert sorted(file.name for file in (tmp_path / "copy/deep").iterdir()) == ["db"]
    with closing(sqlite3.connect(tmp_path / "copy/deep/db")) as copy:
        assert copy.execute("SELECT n FROM t").fetchall() == [(7,)]
        copy.execute("DELETE FROM t")
        copy.commit()
    with closing(sqlite3.connect(base / "deep/db")) as database:
        assert database.execute("SELECT n FROM t").fetchall() == [(7,)]


def test_only_what_nobody_may_write_is_shared(base: Path, tmp_path: Path) -> None:
    (base / "fixed").write_text("a")
    (base / "fixed").chmod(0o444)
    (base / "open").write_text("b")
    (base / "looks-like-a-journal-wal").write_text("c")
    copy_state(base, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert (copy / "fixed").samefile(base / "fixed")
    assert not (copy / "open").samefile(base / "open")
    assert (copy / "open").read_text() == "b"
    assert (copy / "looks-like-a-journal-wal").read_text() == "c"


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_leads_elsewhere_is_refused(base: Path, tmp_path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(base / "odd")
    else:
        (base / "odd").symlink_to("/etc/hostname" if kind == "link" else "/etc")
    with pytest.raises(PermanentError, match="neither a file nor a folder"):
        copy_state(base, tmp_path / "copy")


def test_a_damaged_database_is_refused(base: Path, tmp_path: Path) -> None:
    (base / "db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with pytest.raises(PermanentError, match="cannot copy the database"):
        copy_state(base, tmp_path / "copy")


def test_for_another_user_a_database_is_copied_with_its_journal(base: Path, tmp_path: Path) -> None:
    """SQLite would follow what a program has written there, with the rights of the runner."""
    with closing(sqlite3.connect(base / "deep/db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA wal_autocheckpoint=0")
        database.execute("CREATE TABLE t (n)")
        database.execute("INSERT INTO t VALUES (7)")
        database.commit()
        copy_state(base, tmp_path / "copy", share=False)
    assert sorted(file.name for file in (tmp_path / "copy/deep").iterdir()) == ["db", "db-wal"]
    with closing(sqlite3.connect(tmp_path / "copy/deep/db")) as copy:
        assert copy.execute("SELECT n FROM t").fetchall() == [(7,)]


def test_a_copy_has_no_rights_beyond_those_to_read_write_and_run(
    base: Path, tmp_path: Path
) -> None:
    (base / "tool").write_text("#!/bin/sh")
    (base / "tool").chmod(0o6755)
    copy_state(base, tmp_path / "copy", share=False)
    assert (tmp_path / "copy/tool").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_becomes_a_link_while_it_is_copied_is_not_followed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_folder: bool
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    (base / "deep/data").write_text("data")
    real = os.stat

    def swap(name: Any, **more: Any) -> os.stat_result:
        status = real(name, **more)
        if name == ("deep" if is_folder else "data") and not (base / "moved").exists():
            path = base / ("deep" if is_folder else "deep/data")
            path.rename(base / "moved")
            path.symlink_to(secret if is_folder else secret / "key")
        return status

    monkeypatch.setattr("speck.runner.copying.os.stat", swap)
    with pytest.raises((PermanentError, OSError)):
        copy_state(base, tmp_path / "copy", share=False)
    assert (base / "moved").exists()
    assert not [each for each in tmp_path.rglob("key") if each.parent != secret]
    assert not (tmp_path / "copy/deep/data").exists()
