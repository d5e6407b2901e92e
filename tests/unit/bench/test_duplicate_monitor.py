from __future__ import annotations

from bench.instruments.duplicate_monitor import DuplicateMonitor


def job(jid: str, state: str, began_s: float, ended_s: float = -0.001) -> dict[str, object]:
    return {
        "jid": jid,
        "name": "j",
        "state": state,
        "start-time": round(began_s * 1000),
        "end-time": round(ended_s * 1000),
    }


def test_one_after_the_other_is_one_at_once() -> None:
    witness = DuplicateMonitor({})
    witness._note("a", [job("1", "FINISHED", 10, 20)])
    witness._note("b", [job("2", "FINISHED", 20, 30)])
    assert witness.most_at_once() == {"j": 1}
    assert witness.two_copies() == []


def test_two_that_overlap_are_two_copies_though_no_look_saw_both() -> None:
    witness = DuplicateMonitor({})
    witness._note("a", [job("1", "CANCELED", 10, 20)])
    witness._note("b", [job("2", "RUNNING", 19.9)])
    assert witness.two_copies() == ["j"]


def test_one_that_vanished_with_its_engine_lived_until_it_was_last_seen() -> None:
    witness = DuplicateMonitor({})
    witness._note("a", [job("1", "RUNNING", 10)])
    (life,) = witness.lives("j")
    assert life.ended is None
    witness._note("a", [job("2", "RUNNING", life.end + 1)])
    assert witness.two_copies() == []
