from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

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
