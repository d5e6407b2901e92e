"""Traces of other collectors are imported as rows of the dataset."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.foreign import convert
from speck.errors import InvalidError
from speck.metrics.dataset.exchange import ImportResult, import_file
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import TASKS

GAUGES = "job,vertex,subtask,timestamp,busyTimeMsPerSecond,{held},numRecordsInPerSecond,load"


def convert_and_import(folder: Path, name: str, text: str) -> ImportResult:
    (folder / name).write_text(text)
    convert(folder / name, folder / "rows.parquet")
    return import_file(LocalStorage(folder / "in"), folder / "rows.parquet", "rows", "parquet")


def trace(*rows: str, held: str = "backPressuredTimeMsPerSecond") -> str:
    return "\n".join([GAUGES.format(held=held), *rows])


@pytest.mark.parametrize("held", ["backPressuredTimeMsPerSecond", "backPressureTimeMsPerSecond"])
def test_gauges_become_totals(tmp_path: Path, held: str) -> None:
    text = trace(
        "A,v,0,1772366400000,900,0,5,1",
        "A,v,0,2026-03-01T12:00:10Z,500,100,20,1",
        "A,v,0,1772366415000,250,0,10.3,1",
        held=held,
    )
    result = convert_and_import(tmp_path, "x.csv", text)
    assert (result.table, result.new) == ("tasks", 3)
    rows = sorted(read(LocalStorage(tmp_path / "in"), TASKS).to_pylist(), key=lambda row: row["at"])
    totals = [(row["busy_ms"], row["back_pressured_ms"], row["records_in"]) for row in rows]
    assert totals == [(0, 0, 0), (5000, 1000, 200), (6250, 1000, 252)]
    assert {row["engine_job_id"] for row in rows} == {"A@1772366400000"}
    assert {(row["job_name"], row["composition"], row["site"]) for row in rows} == {
        ("A", "_alone", None)
    }
    assert {row["idle_ms"] for row in rows} == {None}


def test_time_that_was_not_seen_is_not_counted_as_nothing(tmp_path: Path) -> None:
    lines = [f"A,v,0,{1772366400000 + second * 1000},100,0,1,1" for second in (0, 10, 20, 300, 310)]
    lines.append("A,v,0,1772366720000,NaN,0,1,1")
    lines.append("A,v,0,1772366730000,100,0,1,1")
    convert_and_import(tmp_path, "x.csv", trace(*lines))
    rows = sorted(read(LocalStorage(tmp_path / "in"), TASKS).to_pylist(), key=lambda row: row["at"])
    assert [row["busy_ms"] for row in rows] == [0, 1000, 2000, 0, 1000, 0, 1000]
    incarnations = [row["engine_job_id"] for row in rows]
    assert [incarnations.index(one) for one in incarnations] == [0, 0, 0, 3, 3, 5, 5]


def test_a_trace_imported_twice_is_there_once(tmp_path: Path) -> None:
    text = trace(*(f"A,v,0,{1772366400000 + n * 5000},100,0,1,1" for n in range(9)))
    assert convert_and_import(tmp_path, "x.csv", text).new == 9
    assert convert_and_import(tmp_path, "x.csv", text).new == 0


def test_a_trace_as_json_lines_names_composition_and_site(tmp_path: Path) -> None:
    row = {"job": "A", "vertex": "v", "subtask": 0, "timestamp": 1772366400000}
    text = json.dumps({**row, "site": "edge-a", "composition": "c", "idleTimeMsPerSecond": 5})
    convert_and_import(tmp_path, "x.jsonl", text)
    (task_row,) = read(LocalStorage(tmp_path / "in"), TASKS).to_pylist()
    assert (task_row["composition"], task_row["site"], task_row["idle_ms"]) == ("c", "edge-a", 0)
    assert task_row["at"] == datetime(2026, 3, 1, 12, tzinfo=UTC)
    with pytest.raises(InvalidError, match=r"line 1, column composition: is '\.\./x'"):
        convert_and_import(tmp_path, "x.jsonl", json.dumps({**row, "composition": "../x"}))


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="it has no column vertex"):
        convert_and_import(tmp_path, "x.csv", "job,timestamp\n")
