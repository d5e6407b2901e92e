"""Export and import: exported rows are imported unchanged, and faults are named."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speck.errors import InvalidError, TransientError
from speck.metrics.dataset.exchange import ImportResult, export, import_file
from speck.metrics.dataset.files import sweep
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import PLANS, SITES, TASKS, Table
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import (
    NOON,
    DiedError,
    ErringDisk,
    FullDisk,
    HandClock,
    MortalDisk,
    list_paths,
    site,
    task,
)

FORMATS = ["parquet", "csv", "jsonl"]
PLAN = {"at": NOON, "composition": "c", "engine_job_id": "a1", "vertex": "v"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two days of rows, one of them twice, with all that is hard to write as text."""
    folder = tmp_path / "metrics"
    writer = Writer(LocalStorage(folder), clock=HandClock())
    for _ in range(2):
        writer.append(TASKS, [task(0.000001, busy_ms=0.1, job_name='a "b", c\nd', is_sink=True)])
        writer.flush()
    writer.append(TASKS, [task(86_400, busy_ms=math.nan, bytes_in=2**53 + 1), task(5)])
    writer.append(TASKS, [task(5, composition="other")])
    writer.append(SITES, [site(cores=0.25)])
    writer.append(PLANS, [{**PLAN, "ship_strategies": ["HASH", "FORWARD"], "pinned": False}])
    writer.flush()
    return folder


def exported(root: Path, table: Table, form: str, path: Path, **range_: Any) -> Path:
    with path.open("wb") as out:
        export(LocalStorage(root), table, out, form, **range_)
    return path


def list_rows(root: Path, table: Table) -> list[str]:
    return sorted(str(row) for row in read(LocalStorage(root), table).to_pylist())


def write_file(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def import_text(tmp_path: Path, name: str, text: str | bytes, **more: Any) -> ImportResult:
    form = name.rpartition(".")[2]
    return import_file(
        LocalStorage(tmp_path / "in"), write_file(tmp_path, name, text), name, form, **more
    )


@pytest.mark.parametrize("table", [TASKS, SITES, PLANS])
@pytest.mark.parametrize("form", FORMATS)
def test_what_was_exported_is_imported_as_it_was(
    root: Path, tmp_path: Path, form: str, table: Table
) -> None:
    path = exported(root, table, form, tmp_path / f"x.{form}")
    into = tmp_path / "other"
    result = import_file(LocalStorage(into), path, path.name, form)
    assert result.table == table.name
    assert result.new == result.rows == len(list_rows(root, table))
    assert list_rows(into, table) == list_rows(root, table)


@pytest.mark.parametrize("form", FORMATS)
def test_a_second_import_changes_nothing(root: Path, tmp_path: Path, form: str) -> None:
    path = exported(root, TASKS, form, tmp_path / f"x.{form}")
    before = {file: file.read_bytes() for file in root.rglob("*.parquet")}
    assert import_file(LocalStorage(root), path, path.name, form).new == 0
    assert {file: file.read_bytes() for file in root.rglob("*.parquet")} == before


def test_the_range_and_composition_that_were_asked_for(root: Path, tmp_path: Path) -> None:
    out = io.BytesIO()
    result = export(LocalStorage(root), TASKS, out, "jsonl", NOON, NOON + timedelta(hours=1), "c")
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert result.rows == len(rows) == 2
    assert {row["composition"] for row in rows} == {"c"}
    assert min(row["at"] for row in rows) == "2026-03-01T12:00:00.000001Z"


def test_a_damaged_file_is_told_by_the_export(root: Path) -> None:
    bad = list_paths(root, TASKS)[0]
    bad.write_bytes(b"PAR1")
    result = export(LocalStorage(root), TASKS, io.BytesIO(), "csv")
    assert [damaged.path for damaged in result.damaged] == [str(bad)]


def test_an_empty_export_has_its_columns(tmp_path: Path) -> None:
    out = io.BytesIO()
    export(LocalStorage(tmp_path / "none"), SITES, out, "csv")
    assert out.getvalue().decode().startswith('"at","site","tier"')


HEADER = "at,composition,engine_job_id,vertex,subtask,busy_ms,records_in,is_sink"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "2026-03-01T12:00:00,c,a,v,0,,,",
            "column at: is '2026-03-01T12:00:00'; write an RFC 3339",
        ),
        ("2026-03-01T12:00:00Z,c,a,v,x,,,", "column subtask: is 'x'; write a whole number"),
        ("2026-03-01T12:00:00Z,c,a,v,0,fast,,", "column busy_ms: is 'fast'; write a number"),
        ("2026-03-01T12:00:00Z,c,a,v,0,,1.5,", "column records_in: is '1.5'; write a whole number"),
        ("2026-03-01T12:00:00Z,c,a,v,0,,,yes", "column is_sink: is 'yes'; write true or false"),
        ("2026-03-01T12:00:00Z,c,a,,0,,,", "column vertex: is missing"),
        ("2026-03-01T12:00:00Z,c,a,v,0", "does not have as many values as the header"),
    ],
)
def test_bad_rows_are_named_with_line_and_column(tmp_path: Path, row: str, words: str) -> None:
    text = f"{HEADER}\n2026-03-01T12:00:00Z,c,a,v,0,1.5,7,true\n{row}\n"
    with pytest.raises(InvalidError, match=r"cannot import x\.csv: line 3, column ") as error:
        import_text(tmp_path, "x.csv", text)
    assert words in str(error.value)
    assert not list(tmp_path.rglob("*.parquet"))


def test_all_faults_are_told_up_to_twenty(tmp_path: Path) -> None:
    rows = [f"2026-03-01T12:00:00Z,c,a,v,bad{number},,," for number in range(30)]
    with pytest.raises(InvalidError) as error:
        import_text(tmp_path, "x.csv", "\n".join([HEADER, *rows[:3]]))
    assert [problem.line for problem in error.value.problems] == [2, 3, 4]
    with pytest.raises(InvalidError) as error:
        import_text(tmp_path, "x.csv", "\n".join([HEADER, *rows]))
    assert len(error.value.problems) == 20


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("x.jsonl", '{"at": 1}\n[1]\n', "its columns fit no table"),
        ("x.jsonl", "no\n", "line 1, column : is not valid JSON"),
        ("x.csv", "at,site\n", "its columns fit several tables"),
        ("x.csv", "at,site,tier,core\n", "fit no table (none has a column 'core')"),
        ("x.csv", "at,site,tier,pace\n", "(column pace is called core_speed now)"),
        ("x.jsonl", '{"at": 1, "site": "a", "pace": 1}\n', "pace is called core_speed now"),
        ("x.csv", b"at,\xff\xfe\n", "cannot read x.csv as csv"),
        ("x.csv", "", "its columns fit no table"),
        ("x.parquet", "not at all", "cannot read x.parquet as parquet"),
    ],
)
def test_what_is_no_table_is_refused(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    with pytest.raises(InvalidError) as error:
        import_text(tmp_path, name, text)
    assert words in str(error.value)


def test_which_table_it_is_can_be_said(tmp_path: Path) -> None:
    result = import_text(
        tmp_path, "x.csv", "at,site,tier\n1772366400000,edge-a,edge\n", table=SITES
    )
    assert (result.new, result.since, result.until) == (1, NOON, NOON)


def test_a_column_with_a_former_name_is_named_with_its_new_one(tmp_path: Path) -> None:
    text = "at,site,tier,pace,core\n1772366400000,edge-a,edge,0.5,1\n"
    with pytest.raises(InvalidError) as error:
        import_text(tmp_path, "x.csv", text, table=SITES)
    faults = {problem.path: problem.message for problem in error.value.problems}
    assert faults["pace"] == "is not a column; it is called core_speed now"
    assert faults["core"].startswith("is not a column; the columns are at, ")


def test_parquet_of_other_types_is_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    rows = {"at": [1772366400000], "site": ["edge-a"], "tier": ["edge"], "cores": ["x"]}
    pq.write_table(pa.table(rows), path)
    with pytest.raises(InvalidError, match="line 1, column cores: is 'x'; write a number"):
        import_file(LocalStorage(tmp_path / "in"), path, "x.parquet", "parquet")
    pq.write_table(pa.table({**rows, "cores": [2]}), path)
    assert import_file(LocalStorage(tmp_path / "in"), path, "x.parquet", "parquet").new == 1
    (row,) = read(LocalStorage(tmp_path / "in"), SITES).to_pylist()
    assert (row["at"], row["cores"]) == (NOON, 2.0)


def test_rows_come_into_the_days_they_belong_to(tmp_path: Path) -> None:
    lines = [f"{task(day * 86_400)['at'].isoformat()},c,a,v,0,,," for day in range(3)]
    import_text(tmp_path, "x.csv", "\n".join([HEADER, *lines]))
    assert len(list_paths(tmp_path / "in", TASKS)) == 3


def test_a_full_disk_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    path = exported(root, TASKS, "parquet", tmp_path / "x.parquet")
    disk = FullDisk()
    disk.full = True
    with pytest.raises(TransientError, match="nothing was imported"):
        import_file(LocalStorage(tmp_path / "in", disk), path, "x", "parquet")
    assert [file for file in (tmp_path / "in").rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
def test_a_kill_during_an_import_leaves_all_or_nothing(
    root: Path, tmp_path: Path, step: int, half: bool
) -> None:
    path = exported(root, TASKS, "parquet", tmp_path / "x.parquet")
    into = tmp_path / "in"
    with pytest.raises(DiedError):
        import_file(LocalStorage(into, MortalDisk(step, half=half)), path, "x", "parquet")
    sweep(LocalStorage(into))
    assert list_rows(into, TASKS) in ([], list_rows(root, TASKS))
    import_file(LocalStorage(into), path, "x", "parquet")
    assert list_rows(into, TASKS) == list_rows(root, TASKS)
    assert not [file for file in into.rglob(".*") if file.name != ".lock"]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
def test_an_error_during_an_import_says_whether_anything_was_imported(
    root: Path, tmp_path: Path, step: int, half: bool
) -> None:
    path = exported(root, TASKS, "parquet", tmp_path / "x.parquet")
    into = tmp_path / "in"
    with pytest.raises(TransientError, match="cannot") as error_info:
        import_file(LocalStorage(into, ErringDisk(step, half=half)), path, "x", "parquet")
    sweep(LocalStorage(into))
    none = "nothing was imported" in str(error_info.value)
    assert none != ("do not repeat the import" in str(error_info.value))
    assert list_rows(into, TASKS) == ([] if none else list_rows(root, TASKS))
    assert not [file for file in into.rglob(".*") if file.name != ".lock"]


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "'=1",
    "''",
    "'",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20x",
]
HARMLESS = ["plant/line", "a=b", "it's", "1"]


def test_cells_of_a_csv_file_compute_nothing_and_are_imported_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    writer = Writer(LocalStorage(folder), clock=HandClock())
    names = [*FORMULAS, *HARMLESS]
    writer.append(TASKS, [task(number, job_name=name) for number, name in enumerate(names)])
    writer.flush()
    path = exported(folder, TASKS, "csv", tmp_path / "tasks.csv")
    with path.open(newline="") as lines:
        cells = [row["job_name"] for row in csv.DictReader(lines)]
    assert sorted(cells) == sorted([*(f"'{name}" for name in FORMULAS), *HARMLESS])
    with path.open(newline="") as lines:
        texts = [cell for row in csv.reader(lines) for cell in row if not _is_number(cell)]
    assert not [cell for cell in texts if cell[:1] in tuple("=+-@\t\r\n")]
    for form in FORMATS:
        other = tmp_path / form
        file = exported(folder, TASKS, form, tmp_path / f"again.{form}")
        import_file(LocalStorage(other), file, "again", form)
        assert list_rows(other, TASKS) == list_rows(folder, TASKS)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
