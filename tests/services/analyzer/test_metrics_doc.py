"""docs/metrics.md says what the schema says, and its programs run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from bench.samples import Spec, generate
from speck.cli.main import root
from speck.metrics.dataset.schema import TABLES, Table

DOC = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
SPEC = Spec(jobs=6, sites=3, hours=0.5, links_every_s=600, restarts_per_hour=1, duplicates=0.1)
PROGRAMS = dict(
    zip(
        ("DuckDB", "pyarrow", "PySpark"), re.findall(r"```python\n(.*?)```", DOC, re.S), strict=True
    )
)


def described(table: Table) -> str:
    """The rows of a table's columns as the page shows them."""
    lines = ["| column | type | what it holds |", "|---|---|---|"]
    for field in table.schema:
        name = f"**{field.name}**" if field.name in table.key else field.name
        kind = f"{field.type}" if field.nullable else f"{field.type}, always"
        lines.append(f"| {name} | {kind} | {table.about[field.name]} |")
    return "\n".join(lines)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_column_is_described(table: Table) -> None:
    assert set(table.about) == set(table.schema.names)
    (section,) = re.findall(rf"### {table.name}\n.*?\n\n(\|.*?)\n\n", DOC, re.S)
    assert section == described(table)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doc")
    generate(folder / "metrics", SPEC)
    return folder


@pytest.fixture(scope="module")
def first(metrics: Path) -> list[tuple[str, int]]:
    return run(PROGRAMS["DuckDB"], metrics)


def run(program: str, folder: Path) -> list[tuple[str, int]]:
    before = Path.cwd()
    names: dict[str, Any] = {}
    os.chdir(folder)
    try:
        exec(program.replace("metrics/tasks", f"{folder}/metrics/tasks"), names)
    finally:
        os.chdir(before)
    return names["rows"]


def test_the_programs_give_the_same_rows(
    metrics: Path, first: list[tuple[str, int]], spark: SparkSession
) -> None:
    assert len(first) == SPEC.jobs
    assert all(records > 1000 for _, records in first)
    assert run(PROGRAMS["pyarrow"], metrics) == first
    assert run(PROGRAMS["PySpark"], metrics) == first


def test_the_commands_are_there() -> None:
    (block,) = re.findall(r"```\n(speck metrics.*?)```", DOC, re.S)
    for line in block.splitlines():
        _, *words = line.split()
        output = CliRunner().invoke(root, [*words[:2], "--help"], prog_name="speck").output
        assert all(word in output for word in words if word.startswith("--"))
        assert output.startswith(f"Usage: speck {' '.join(words[:2])}")
