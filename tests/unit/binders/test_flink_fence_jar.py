"""The jar that uses engine job ids up. Real Flink runs it in tests/contracts and tests/services."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from binders.flink.fence_jar import FENCE_CLASS, write_fence_jar


def test_the_jar_is_always_the_same(tmp_path: Path) -> None:
    """Engines keep it under its hash."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (one, sha256), (other, again) = (write_fence_jar(tmp_path / name) for name in ("one", "other"))
    assert (one.read_bytes(), sha256) == (other.read_bytes(), again)


def test_it_holds_no_entry_class_of_its_own(tmp_path: Path) -> None:
    """Flink instantiates the entry class of every jar whenever jars are listed."""
    jar, _ = write_fence_jar(tmp_path)
    with zipfile.ZipFile(jar) as archive:
        assert b"Main-Class" not in archive.read("META-INF/MANIFEST.MF")


def test_its_main_only_submits_a_job(tmp_path: Path) -> None:
    jar, _ = write_fence_jar(tmp_path)
    listing = subprocess.run(
        ["javap", "-c", "-cp", jar, FENCE_CLASS], check=True, capture_output=True, text=True
    ).stdout
    calls = [line.rpartition("Method ")[2] for line in listing.splitlines() if "Method " in line]
    names = [call.partition(":")[0].rpartition("/")[2] for call in calls]
    assert names == [
        "StreamExecutionEnvironment.getExecutionEnvironment",
        "StreamExecutionEnvironment.fromSequence",
        "DataStream.print",
        "StreamExecutionEnvironment.execute",
    ]
