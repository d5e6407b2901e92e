"""`speck batch`."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from click.testing import CliRunner

from speck.cli.main import root
from speck.metrics.dataset.reading import LOCK
from tests.archives import LocalPlace, store_batch


def store(folder: Path, batches: int) -> None:
    for number in range(batches):
        rows = {"day=2001-01-01/site=A": [number]}
        store_batch(LocalPlace(folder), folder, "0a", number, rows)


def test_compact_joins_files_of_past_days(tmp_path: Path) -> None:
    store(tmp_path, 8)
    result = CliRunner().invoke(root, ["batch", "compact", f"file://{tmp_path}", "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"joined": 4, "written": 1, "damaged": []}
    result = CliRunner().invoke(root, ["batch", "compact", str(tmp_path)])
    assert result.stdout == "joined 0 files into 0\n"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store(tmp_path, 8)
    damaged = next((tmp_path / "detections").rglob("batch-0a-000000000-*.parquet"))
    damaged.write_bytes(b"")
    result = CliRunner().invoke(root, ["batch", "compact", str(tmp_path)])
    assert result.stdout == "joined 3 files into 1\n"
    assert f"cannot read {damaged}" in result.stderr


def test_an_archive_that_is_in_use_or_is_none_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(root, ["batch", "compact", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot find an archive at" in result.stderr
    store(tmp_path, 1)
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        result = CliRunner().invoke(root, ["batch", "compact", str(tmp_path)])
    assert result.exit_code == 1
    assert "it is being read, or compacted; run it again" in result.stderr
