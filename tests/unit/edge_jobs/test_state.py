from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from speck_link.reporting import Reporter
from speck_link.state import Row, State


def test_a_checkpoint_is_all_or_nothing(tmp_path: Path) -> None:
    state = State(tmp_path)
    table = state.table("t")
    table.put("a", [1, 2])
    message: Row = (1, "link", 3, 4, 1, None, b"x", 1)
    assert state.commit({"taken": "t1"}, [message], ()) == 1
    table.put("a", [1, 2, 3])
    table.put("b", 1)
    state.close()  # what was not committed is gone

    state = State(tmp_path)
    assert (state.number, state.fact("taken")) == (1, "t1")
    assert dict(state.table("t").items()) == {"a": [1, 2]}
    assert state.messages() == [message]
    state.table("t").remove("a")
    state.commit({}, (), [1])
    state.close()
    state = State(tmp_path)
    assert len(state.table("t")) == 0
    assert state.messages() == []


def test_a_checkpoint_without_a_change_counts_all_the_same(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.commit({}, (), ())
    assert state.touch() == 2
    state.close()
    assert int.from_bytes((tmp_path / "checkpoint").read_bytes(), "big") == 2
    state = State(tmp_path)
    assert state.number == 2
    assert not state.has_changed
    state.table("t").put("a", 1)
    assert state.has_changed


def test_a_disk_that_is_full_is_named_and_costs_nothing_that_was_stored(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.table("t").put("a", "small")
    state.commit({}, (), ())
    database = state._database
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    state.table("t").put("b", "x" * 100_000)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        state.commit({}, (), ())
    state.close()
    state = State(tmp_path)
    assert state.number == 1
    assert dict(state.table("t").items()) == {"a": "small"}


def test_a_report_that_cannot_be_written_ends_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.new").mkdir()
    monkeypatch.setenv("SPECK_REPORT", str(tmp_path / "report.json"))
    Reporter().write(ready=True)
    assert not (tmp_path / "report.json").exists()
    (tmp_path / "report.new").rmdir()
    Reporter().write(ready=True)
    assert (tmp_path / "report.json").read_text() == '{"start": 0, "ready": true}'
