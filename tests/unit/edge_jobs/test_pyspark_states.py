"""What is known of the state of a job in PySpark, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

from speck_spark.states import Checkpoint, StateNumber


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


def checkpoint(folder: Path, *, state: bool = True) -> Path:
    """One of parallelism 2, as Spark lays it out."""
    (folder / "offsets").mkdir(parents=True)
    conf = {"spark.sql.shuffle.partitions": "2"}
    lines = ["v1", json.dumps({"batchWatermarkMs": 0, "conf": conf}), "{}"]
    (folder / "offsets/9").write_text("v1\n{}\n")
    (folder / "offsets/10").write_text("\n".join(lines))
    for other in (".11.crc", "12.crc"):
        (folder / "offsets" / other).write_text("no log")
    if state:
        (folder / "state/0").mkdir(parents=True)
    return folder


def test_a_state_is_of_one_parallelism(tmp_path: Path) -> None:
    found = Checkpoint(checkpoint(tmp_path / "stateful"))
    assert found.find_fault(2) is None
    assert found.find_fault(3) == (
        "cannot go on from its checkpoint with parallelism 3: its state was made with parallelism"
        " 2, which cannot be changed; describe it so, or let the job begin anew with upgrade:"
        " stateless"
    )
    assert Checkpoint(checkpoint(tmp_path / "stateless", state=False)).find_fault(3) is None
    assert Checkpoint(tmp_path / "none").find_fault(3) is None
