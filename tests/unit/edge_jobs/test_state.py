from __future__ import annotations

from pathlib import Path

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
