"""What is known of the state of a job in PySpark, without Spark."""

from __future__ import annotations

from pathlib import Path

from speck_spark.states import StateNumber


def test_the_number_of_a_state_rises_when_the_disk_takes_it(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.new").mkdir()
    number = StateNumber(tmp_path / "checkpoint")
    number.step()
    assert not (tmp_path / "checkpoint").exists()
    (tmp_path / ".checkpoint.new").rmdir()
    number.step()
    number.step()
    assert (tmp_path / "checkpoint").read_bytes() == (2).to_bytes(8, "big")
    StateNumber(tmp_path / "checkpoint").step()
    assert (tmp_path / "checkpoint").read_bytes() == (3).to_bytes(8, "big")
