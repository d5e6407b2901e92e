"""What holds for a dataset wherever it lies: in a folder, in S3 (moto's server), or on a file
system that renames as HDFS does."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from speck.errors import ConflictError, TransientError
from speck.metrics.dataset.exchange import export, import_file
from speck.metrics.dataset.files import claim, list_partitions, sweep
from speck.metrics.dataset.import_process import import_in_process
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.origins import UNITS, fingerprint_units
from speck.metrics.dataset.reading import (
    find_newest,
    has_composition,
    hold_files,
    list_files,
    read,
    scan,
)
from speck.metrics.dataset.remote import open_s3
from speck.metrics.dataset.schema import SITES, TASKS
from speck.metrics.dataset.storage import Storage
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, DiedError, HandClock, site, task
from tests.s3_server import s3_server
from tests.storages import make_mortal, open_renaming

DAY = 86_400
TOMORROW = NOON + timedelta(days=1)
STEPS = pytest.mark.parametrize("step", range(1, 8))
LONG = pytest.mark.long
HALF = pytest.mark.parametrize("half", [pytest.param(False, marks=LONG), True])


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as env:
        yield env


@pytest.fixture(params=["folder", "s3", pytest.param("renaming", marks=LONG)])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Storage:
    """An empty dataset."""
    if request.param == "folder":
        return LocalStorage(tmp_path / "metrics")
    if request.param == "renaming":
        (tmp_path / "there").mkdir()
        return open_renaming(tmp_path / "there", tmp_path / "here")
    for name, value in request.getfixturevalue("s3").items():
        monkeypatch.setenv(name, value)
    return open_s3(f"s3a://metrics/{tmp_path.name}/of-speck", tmp_path / "here")


@pytest.fixture
def filled(storage: Storage) -> Storage:
    """Five files of one day, the third with a row of the second again."""
    writer = Writer(storage, clock=HandClock())
    for second in (0, 1, 1, 3, 4):
        writer.append(TASKS, [task(second, subtask=0), task(second + 0.5, subtask=1)])
        writer.flush()
    return storage


def list_rows(storage: Storage) -> list[dict[str, Any]]:
    rows = read(storage, TASKS).to_pylist()
    return sorted(rows, key=lambda row: (row["subtask"], row["at"]))


def list_hidden(storage: Storage) -> list[str]:
    paths = [file.path for file in storage.list_files("")]
    return [path for path in paths if path.startswith(".") or "/." in path if path != ".lock"]


def test_rows_are_read_as_they_were_written(storage: Storage) -> None:
    assert find_newest(storage, TASKS) is None
    assert scan(storage, TASKS).rows.num_rows == 0
    writer = Writer(storage, clock=HandClock())
    writer.append(TASKS, [task(0, busy_ms=1.5), task(DAY, composition="_alone")])
    writer.append(SITES, [site(2, cores=0.25)])
    writer.flush()

    rows = list_rows(storage)

    assert [(row["composition"], row["busy_ms"]) for row in rows] == [("c", 1.5), ("_alone", None)]
    assert read(storage, TASKS, composition="c").num_rows == 1
    assert read(storage, TASKS, since=TOMORROW).num_rows == 1
    assert find_newest(storage, TASKS) == TOMORROW
    assert find_newest(storage, TASKS, "c") == NOON
    assert has_composition(storage, TASKS, "c")
    assert not has_composition(storage, TASKS, "d")
    assert [partition.composition for partition, _ in list_partitions(storage, TASKS)] == [
        "c",
        "_alone",
    ]
    assert [file.folder for file in list_files(storage, SITES)] == ["sites/day=2026-03-01"]
    assert not list_hidden(storage)


def test_a_day_that_is_over_becomes_one_file(filled: Storage) -> None:
    before = list_rows(filled)
    prints = fingerprint_units(filled, TASKS, NOON, TOMORROW)

    result = maintain(filled, TOMORROW, 30)

    assert (result.merged, result.written) == (5, 1)
    assert list_rows(filled) == before
    assert scan(filled, TASKS).duplicates == 0
    assert fingerprint_units(filled, TASKS, NOON, TOMORROW) == prints
    assert maintain(filled, TOMORROW, 30).written == 0


@HALF
@STEPS
def test_a_kill_at_any_step_of_a_compaction_loses_and_repeats_nothing(
    filled: Storage, step: int, half: bool
) -> None:
    before = list_rows(filled)
    with suppress(DiedError):  # an object store takes fewer steps than a disk
        maintain(make_mortal(filled, step, half=half), TOMORROW, 30)
    assert list_rows(filled) == before
    Writer(filled)
    maintain(filled, TOMORROW, 30)
    assert len(list_files(filled, TASKS)) == 1
    assert list_rows(filled) == before
    assert not list_hidden(filled)


def test_whole_days_are_dropped_with_the_sums_of_their_units(storage: Storage) -> None:
    writer = Writer(storage, clock=HandClock())
    for day in range(3):
        writer.append(TASKS, [task(day * DAY)])
        writer.append(SITES, [site(day * DAY)])
    writer.flush()
    unit = int(NOON.timestamp()) // 600
    storage.put(f"{UNITS}/tasks/10min/{unit}-{1:016x}.parquet", TASKS.schema.empty_table(), {})

    dropped = maintain(storage, NOON + timedelta(days=3), 2).dropped_days

    assert [day.day for day in dropped] == [1]
    assert [at.day for at in read(storage, TASKS)["at"].to_pylist()] == [2, 3]
    assert [at.day for at in read(storage, SITES)["at"].to_pylist()] == [2, 3]
    assert not storage.list_files(UNITS)


@HALF
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kill_while_a_day_is_dropped_leaves_none_by_half(
    storage: Storage, step: int, half: bool
) -> None:
    writer = Writer(storage, clock=HandClock())
    writer.append(TASKS, [task(composition="a"), task(composition="b"), task(DAY)])
    writer.flush()
    now = NOON + timedelta(days=2)
    with suppress(DiedError):
        maintain(make_mortal(storage, step, half=half), now, 1)
    assert [at.day for at in read(storage, TASKS)["at"].to_pylist()] in ([2], [1, 1, 2])
    maintain(storage, now, 1)
    assert [file.folder for file in storage.list_files("tasks")] == [
        "tasks/day=2026-03-02/composition=c"
    ]


@HALF
@pytest.mark.parametrize("step", range(1, 10))
def test_a_kill_at_any_step_of_an_import_takes_all_rows_or_none(
    storage: Storage, tmp_path: Path, step: int, half: bool
) -> None:
    file = tmp_path / "rows.jsonl"
    names = ("at", "composition", "job_name", "engine_job_id", "vertex", "subtask")
    rows = [
        {name: row[name] for name in names} | {"at": row["at"].isoformat()}
        for row in (task(composition="a"), task(composition="b"), task(DAY))
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    with suppress(DiedError):
        import_file(make_mortal(storage, step, half=half), file, "rows", "jsonl", TASKS)

    sweep(storage)

    assert len(list_rows(storage)) in (0, 3)
    assert not list_hidden(storage)
    import_file(storage, file, "rows", "jsonl", TASKS)
    assert len(list_rows(storage)) == 3


def test_rows_are_exported_and_imported_by_a_process_of_its_own(
    filled: Storage, tmp_path: Path
) -> None:
    out = io.BytesIO()
    assert export(filled, TASKS, out, "parquet").rows == 8
    file = tmp_path / "rows.parquet"
    file.write_bytes(out.getvalue())

    again = import_in_process(filled, file, "rows", "parquet", TASKS)

    assert (again.rows, again.new) == (8, 0)
    moved = pq.read_table(file)
    moved = moved.set_column(0, "at", [[at + timedelta(days=1) for at in moved["at"].to_pylist()]])
    pq.write_table(moved, file)
    assert import_in_process(filled, file, "rows", "parquet", TASKS).new == 8
    assert len(list_rows(filled)) == 16


def test_a_write_that_fails_keeps_its_rows_for_later(storage: Storage) -> None:
    writer = Writer(make_mortal(storage, 1, error=True), clock=HandClock())
    writer.append(TASKS, [task(0)])
    with pytest.raises(TransientError, match=r"cannot write metrics of tasks below .*retried: "):
        writer.flush()
    assert not storage.list_files("")
    writer.append(TASKS, [task(1)])
    writer.flush()
    assert [row["at"] for row in list_rows(storage)] == [task(0)["at"], task(1)["at"]]


def test_a_place_belongs_to_one_service(storage: Storage) -> None:
    claim(storage, "one")
    claim(storage, "one")
    with pytest.raises(ConflictError, match="the service of installation one does; give each"):
        claim(storage, "other")


def test_who_reads_keeps_the_files(filled: Storage) -> None:
    with hold_files(filled):
        assert maintain(filled, TOMORROW, 30).busy
    assert maintain(filled, TOMORROW, 30).written == 1
