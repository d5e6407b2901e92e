from __future__ import annotations

from pathlib import Path

from speck.runner.logs import MOST, read_tail, rotate


def test_a_log_that_grows_too_long_is_kept_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as program:  # as the program has it open
        program.write(b"a" * MOST)
        program.flush()
        rotate(log)
        assert not (tmp_path / "log.1").exists()
        program.write(b"b\n")
        program.flush()
        rotate(log)
        program.write(b"c\n")
        program.flush()
    assert log.read_bytes() == b"c\n"
    assert (tmp_path / "log.1").stat().st_size == MOST + 2


def test_the_tail_is_that_of_the_last_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\nafter\n")
    assert read_tail(log, 7) == "after"
    assert read_tail(log, 700) == "before\nafter", "it was rotated since"
    assert read_tail(tmp_path / "nowhere") == ""
