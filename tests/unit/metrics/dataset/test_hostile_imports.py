"""Small files that are much when they are read (attack S10), and imports in many batches."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speck.errors import InvalidError
from speck.metrics.dataset import arrivals, import_process, parsing
from speck.metrics.dataset.exchange import import_file
from speck.metrics.dataset.import_process import import_in_process
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.schema import TASKS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write_rows(path: Path, rows: int, text: str = "x") -> None:
    """A file of equal rows, which takes next to nothing: each text is stored once."""
    columns = {}
    for field in TASKS.schema:
        if pa.types.is_timestamp(field.type):
            columns[field.name] = pa.array([NOON], field.type).take(np.zeros(rows, dtype=int))
        elif pa.types.is_string(field.type):
            zeros = pa.array(np.zeros(rows, dtype="int32"))
            columns[field.name] = pa.DictionaryArray.from_arrays(zeros, pa.array([text]))
        else:
            columns[field.name] = pa.array(np.zeros(rows, dtype="int32")).cast(field.type)
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=rows)


_MEASURED = """
import resource, sys
from pathlib import Path
from speck.errors import InvalidError
from speck.metrics.dataset.import_process import import_in_process
from speck.metrics.dataset.local import LocalStorage
try:
    import_in_process(LocalStorage(Path(sys.argv[1])), Path(sys.argv[2]), "texts", "parquet", None)
except InvalidError as error:
    print(str(error).replace(chr(10), " "))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Prints why an import is refused, and the most memory of the process that read it, in kB."""


def test_texts_that_repeat_are_not_held_again_and_again(tmp_path: Path) -> None:
    file, root = tmp_path / "texts.parquet", tmp_path / "metrics"
    write_rows(file, 100_000, "y" * 500_000)  # 50 GB of one column
    assert file.stat().st_size < 1_000_000
    # in a Python of its own: children of this one begin with its memory
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(root), str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    message, peak_kb = done.stdout.splitlines()
    assert "takes more than 256 MiB of memory" in message
    assert int(peak_kb) < 900_000
    assert not list(root.rglob("*.parquet*")), "nothing half-done stays"


def test_a_file_of_too_many_rows_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_ROWS", 999)
    write_rows(tmp_path / "rows.parquet", 1_000)
    with pytest.raises(InvalidError, match="it has more than 999 rows; split it by time"):
        import_file(
            LocalStorage(tmp_path / "metrics"), tmp_path / "rows.parquet", "rows", "parquet"
        )
    (tmp_path / "rows.csv").write_text(
        "at,engine_job_id,vertex,subtask,job_name\n"
        + "".join(f"2026-03-01T12:00:00Z,a,v,{n},j\n" for n in range(1_000))
    )
    with pytest.raises(InvalidError, match="it has more than 999 rows"):
        import_file(LocalStorage(tmp_path / "metrics"), tmp_path / "rows.csv", "rows", "csv", TASKS)


def test_a_file_of_too_many_days_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_PARTITIONS", 3)
    monkeypatch.setattr(parsing, "BATCH", 2)
    (tmp_path / "rows.csv").write_text(
        "at,engine_job_id,vertex,subtask,job_name\n"
        + "".join(f"2026-03-{day:02d}T12:00:00Z,a,v,0,j\n" for day in range(1, 6))
    )
    with pytest.raises(InvalidError, match="are of more than 3 days and compositions"):
        import_file(LocalStorage(tmp_path / "metrics"), tmp_path / "rows.csv", "rows", "csv", TASKS)
    assert not list((tmp_path / "metrics").rglob("*.parquet*"))


@pytest.mark.parametrize("most_keys", [pytest.param(10, marks=pytest.mark.long), 500_000])
def test_batches_of_an_import_know_the_rows_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_keys: int
) -> None:
    """Rows in random order, a third of them twice, over rows that are there already."""
    monkeypatch.setattr(parsing, "BATCH", 25)
    monkeypatch.setattr(arrivals, "MOST_KEYS", most_keys)
    dice = random.Random(1)
    moments = [NOON + timedelta(seconds=5 * n) for n in range(200)]
    lines = [f"{at.isoformat()},a,v,{subtask},j" for at in moments for subtask in (0, 1)]
    mixed = [*lines, *dice.sample(lines, 130)]
    dice.shuffle(mixed)
    head = "at,engine_job_id,vertex,subtask,job_name"
    root = tmp_path / "metrics"
    (tmp_path / "first.csv").write_text("\n".join([head, *lines[100:150]]) + "\n")
    (tmp_path / "all.csv").write_text("\n".join([head, *mixed]) + "\n")
    assert import_file(LocalStorage(root), tmp_path / "first.csv", "first", "csv", TASKS).new == 50
    result = import_file(LocalStorage(root), tmp_path / "all.csv", "all", "csv", TASKS)
    assert (result.rows, result.new) == (530, 350)
    assert (result.since, result.until) == (moments[0], moments[-1])
    rows = read(LocalStorage(root), TASKS)
    assert len(set(zip(rows["at"].to_pylist(), rows["subtask"].to_pylist(), strict=True))) == 400
    assert sum(pq.read_metadata(file).num_rows for file in root.rglob("*.parquet")) == 400
    assert import_file(LocalStorage(root), tmp_path / "all.csv", "all", "csv", TASKS).new == 0


def test_an_import_in_its_process_is_like_one_in_ours(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", 1_000)
    own = import_file(LocalStorage(tmp_path / "a"), tmp_path / "rows.parquet", "rows", "parquet")
    other = import_in_process(
        LocalStorage(tmp_path / "b"), tmp_path / "rows.parquet", "rows", "parquet", None
    )
    assert own == other
    (tmp_path / "bad.csv").write_text("at,engine_job_id,vertex,subtask,job_name\nnever,a,v,0,j\n")
    with pytest.raises(InvalidError) as error:
        import_in_process(LocalStorage(tmp_path / "b"), tmp_path / "bad.csv", "bad", "csv", TASKS)
    (problem,) = error.value.problems
    assert (problem.path, problem.line) == ("at", 2)


def test_an_import_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_process, "LIMIT_S", 0.01)
    write_rows(tmp_path / "rows.parquet", 10)
    with pytest.raises(InvalidError, match="MiB of memory or 600 s"):
        import_in_process(
            LocalStorage(tmp_path), tmp_path / "rows.parquet", "rows", "parquet", None
        )


HEAD = '{"at":"2026-03-01T12:00:00Z","engine_job_id":"a","vertex":"v","subtask":0,"job_name":"j"'


@pytest.mark.parametrize(
    ("more", "column", "message"),
    [
        (f',"busy_ms":1{"0" * 400}', "busy_ms", "write a number"),
        (',"site":"\\ud800"', "site", "write a text"),
        (',"composition":"\\udfff"', "composition", "write a text"),
        (f',"site":{"[" * 100_000}', "", "is not valid JSON"),
        (f',"subtasks":1{"0" * 5000}', "", "is not valid JSON"),
    ],
)
def test_values_that_no_column_can_hold_are_named(
    more: str, column: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text(HEAD + "}\n" + HEAD + more + "}\n")
    with pytest.raises(InvalidError) as error:
        import_file(LocalStorage(tmp_path / "m"), tmp_path / "rows", "rows", "jsonl", TASKS)
    (problem,) = error.value.problems
    assert (problem.path, problem.line) == (column, 2)
    assert message in problem.message


def test_the_names_of_columns_are_shortened_in_an_answer(tmp_path: Path) -> None:
    keys = [f"{number}{'k' * 1_000_000}" for number in range(20)]
    (tmp_path / "rows").write_text("".join(f'{HEAD},"{key}":1}}\n' for key in keys))
    with pytest.raises(InvalidError) as error:
        import_file(LocalStorage(tmp_path / "m"), tmp_path / "rows", "rows", "jsonl", TASKS)
    assert len(str(error.value)) + sum(len(str(each)) for each in error.value.problems) < 20_000
