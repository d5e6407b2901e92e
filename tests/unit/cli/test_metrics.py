"""speck metrics: show, export, import."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from speck.clock import rfc3339
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import SITES, TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, list_paths, site, task
from tests.unit.cli.conftest import Run, Server


@pytest.fixture
def filled(server: Server) -> Server:
    """A dataset of two compositions."""
    writer = Writer(LocalStorage(server.service.config.metrics))
    writer.append(TASKS, [task(0), task(60), task(0, composition="other")])
    writer.append(SITES, [site(cores=2.0)])
    writer.close()
    return server


def test_show(speck: Run, chain: str) -> None:
    assert speck("apply", "-y", chain).exit_code == 0
    output = speck("metrics", "show", "clean")
    assert output.exit_code == 0, output.stderr
    assert output.stdout.startswith("clean at edge-a: lag")
    assert "IN_RATE" in output.stdout
    assert json.loads(speck("metrics", "show", "clean", "-o", "json").stdout)["job_name"] == "clean"
    assert "cannot find job" in speck("metrics", "show", "nothing").stderr


def test_one_table_to_a_file(speck: Run, filled: Server, tmp_path: Path) -> None:
    until = rfc3339(NOON + timedelta(seconds=30))
    result = speck("metrics", "export", "x.csv", "--until", until, "--composition", "c")
    assert result.exit_code == 0, result.stderr
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 2
    assert "x.csv" in result.stdout
    assert [path.name for path in tmp_path.glob(".x*")] == []
    speck("metrics", "export", "s.jsonl", "--table", "sites")
    assert json.loads((tmp_path / "s.jsonl").read_text())["cores"] == 2.0


def test_all_tables_to_a_folder_and_back(speck: Run, filled: Server, tmp_path: Path) -> None:
    result = speck("metrics", "export", "all", "-o", "json")
    assert {one["table"]: one["rows"] for one in json.loads(result.stdout)["files"]} == {
        "tasks": 3,
        "links": 0,
        "plans": 0,
        "sites": 1,
        "brokers": 0,
    }
    assert pq.read_table(tmp_path / "all" / "tasks.parquet").num_rows == 3
    root = filled.service.config.metrics
    before = read(LocalStorage(root), TASKS).to_pylist()
    for path in list_paths(root, TASKS):
        path.unlink()
    back = speck("metrics", "import", "all", "-o", "json")
    assert back.exit_code == 0, back.stderr
    new = {one["table"]: one["new"] for one in json.loads(back.stdout)["files"]}
    assert new == {"tasks": 3, "links": 0, "plans": 0, "sites": 0, "brokers": 0}
    assert sorted(map(str, read(LocalStorage(root), TASKS).to_pylist())) == sorted(map(str, before))


def test_rows_of_old_days_are_imported_with_a_warning(
    speck: Run, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "old.csv").write_text("at,site,tier\n2026-03-01T12:00:00Z,edge-a,edge\n")
    result = speck("metrics", "import", "old.csv", "--table", "sites")
    assert result.exit_code == 0, result.stderr
    assert "days that ended 30 days ago or earlier are dropped" in result.stderr
    rows = read(LocalStorage(server.service.config.metrics), SITES)
    assert "edge-a" in rows["site"].to_pylist()


def test_what_cannot_be_imported_is_told_with_its_line(speck: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at,site,tier,cores\n2026-03-01T12:00:00Z,edge-a,edge,many\n")
    result = speck("metrics", "import", "x.csv")
    assert result.exit_code == 1
    assert "x.csv: line 2, column cores: is 'many'; write a number" in result.stderr
    assert speck("metrics", "import", "none.csv").exit_code == 1
    assert "give .parquet, .csv or .jsonl" in speck("metrics", "import", "x.txt").stderr
    assert "give a name that ends with" in speck("metrics", "export", "x.txt").stderr


def test_damage_is_told(speck: Run, filled: Server) -> None:
    list_paths(filled.service.config.metrics, TASKS)[0].write_bytes(b"PAR1")
    result = speck("metrics", "export", "x.parquet")
    assert "1 files of tasks are damaged and ignored" in result.stderr
