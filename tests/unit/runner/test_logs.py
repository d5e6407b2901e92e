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
    assert (tmp_path / "log.1").stat().st_size == MOST


def test_the_tail_is_that_of_the_last_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\nafter\n")
    assert read_tail(log, 7) == "after"
    assert read_tail(log, 700) == "before\nafter", "it was rotated since"
    assert read_tail(tmp_path / "nowhere") == ""


def test_a_log_is_cut_also_where_the_disk_takes_no_copy_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (MOST + 1))
    (tmp_path / "log.1").mkdir()
    rotate(log)
    assert log.stat().st_size == 0


def test_only_the_end_of_a_log_is_kept_however_fast_it_grew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 3 * MOST + b"end")
    rotate(log)
    kept = (tmp_path / "log.1").read_bytes()
    assert (len(kept), kept[-4:]) == (MOST, b"xend")
