"""The writer: when files appear, what they hold, and what a disk that fails costs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speck.errors import InvalidError, TransientError
from speck.metrics.dataset.files import sweep
from speck.metrics.dataset.local import Disk, LocalStorage
from speck.metrics.dataset.schema import PLANS, SITES, TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, FullDisk, HandClock, site, task


def files(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def rows_of(root: Path) -> list[dict[str, Any]]:
    tables = [pq.ParquetFile(root / path).read() for path in files(root)]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_a_file_appears_in_its_partition_when_flushed(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    writer.append(TASKS, [task(busy_ms=1.5), task(composition="_alone")])
    writer.append(SITES, [site(cores=0.25)])
    assert files(tmp_path) == []
    writer.flush()
    folders = [str(path.parent) for path in files(tmp_path)]
    assert folders == [
        "sites/day=2026-03-01",
        "tasks/day=2026-03-01/composition=_alone",
        "tasks/day=2026-03-01/composition=c",
    ]
    assert all(path.name.startswith("part-1772366400000-") for path in files(tmp_path))
    schema = pq.read_schema(tmp_path / files(tmp_path)[-1]).remove_metadata()
    assert [(f.name, f.type) for f in schema if f.name != "ship_strategies"] == [
        (f.name, f.type) for f in TASKS.schema
    ]


def test_rows_roll_by_age_and_by_number(tmp_path: Path) -> None:
    clock = HandClock()
    writer = Writer(LocalStorage(tmp_path), roll_s=60, roll_rows=3, clock=clock)
    writer.append(TASKS, [task(0)])
    clock.wait(59)
    writer.append(SITES, [])
    assert files(tmp_path) == []
    clock.wait(1)
    writer.append(SITES, [site()])
    assert len(files(tmp_path)) == 1
    writer.append(TASKS, [task(1), task(2)])
    assert len(files(tmp_path)) == 1
    writer.append(TASKS, [task(3)])
    assert len(files(tmp_path)) == 2
    assert writer.waiting == 1


def test_the_day_is_that_of_utc(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    late = datetime(2026, 3, 1, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    writer.append(SITES, [{**site(), "at": late}])
    writer.flush()
    (path,) = files(tmp_path)
    assert path.parent.name == "day=2026-03-02"
    assert rows_of(tmp_path)[0]["at"] == datetime(2026, 3, 2, 1, 30, tzinfo=UTC)


def test_rows_of_one_subtask_lie_together_in_time(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    for second in (2, 0, 1):
        writer.append(TASKS, [task(second, subtask=1), task(second, subtask=0)])
    writer.flush()
    order = [(row["subtask"], (row["at"] - NOON).seconds) for row in rows_of(tmp_path)]
    assert order == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (task(busy_ms="12"), "tasks: busy_ms is '12'; it must be double"),
        (task(records_in=1.5), "tasks: records_in is 1.5; it must be int64"),
        (task(attempt=2**40), "tasks: attempt is 1099511627776; it must be int32"),
        (task(vertex=None), "tasks: vertex is None; it must be string, always"),
        (task(at=None), "tasks: at is None; it must be a time with its zone"),
        (task(at=datetime(2026, 3, 1)), "tasks: at is 2026-03-01 00:00:00; it must be a time with"),
        (task(busyMs=1), "tasks: it has no column 'busyMs'; its columns are at, attempt, "),
        (task(composition="../etc"), "tasks: composition is '../etc'; give a composition's name"),
        (task(composition=None), "tasks: composition is None"),
    ],
)
def test_a_bad_value_is_named_and_nothing_is_taken(tmp_path: Path, row: Any, words: str) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    with pytest.raises(InvalidError, match="cannot take a row for ") as error:
        writer.append(TASKS, [task(1), row])
    assert words in str(error.value)
    assert writer.waiting == 0


def test_what_was_not_told_is_null_and_not_a_number_stays_one(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    writer.append(TASKS, [task(busy_ms=float("nan"))])
    writer.flush()
    (row,) = rows_of(tmp_path)
    assert row["busy_ms"] != row["busy_ms"]
    assert row["idle_ms"] is None


def test_lists_are_kept(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    row = {"at": NOON, "composition": "c", "engine_job_id": "a1", "vertex": "v"}
    writer.append(PLANS, [{**row, "ship_strategies": ["HASH", "FORWARD"], "pinned": False}])
    writer.flush()
    assert rows_of(tmp_path)[0]["ship_strategies"] == ["HASH", "FORWARD"]


def test_a_full_disk_keeps_the_rows_for_later(tmp_path: Path) -> None:
    disk = FullDisk()
    writer = Writer(LocalStorage(tmp_path, disk), clock=HandClock())
    writer.append(TASKS, [task(0)])
    disk.full = True
    with pytest.raises(
        TransientError, match=r"cannot write metrics of tasks below .*No space left"
    ):
        writer.flush()
    assert files(tmp_path) == []
    writer.append(TASKS, [task(1)])
    disk.full = False
    writer.close()
    assert [row["at"] for row in rows_of(tmp_path)] == [task(0)["at"], task(1)["at"]]
    assert (writer.waiting, writer.dropped) == (0, 0)


def test_one_table_that_cannot_be_written_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "sites").write_text("a file where the folder belongs")
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    writer.append(SITES, [site()])
    writer.append(TASKS, [task()])
    with pytest.raises(TransientError, match="metrics of sites"):
        writer.flush()
    assert len(list(tmp_path.rglob("tasks/*/*/*.parquet"))) == 1
    assert writer.waiting == 1


def test_a_disk_that_stays_full_costs_the_oldest_rows_and_they_are_counted(tmp_path: Path) -> None:
    disk = FullDisk()
    writer = Writer(LocalStorage(tmp_path, disk), max_waiting_rows=3, clock=HandClock())
    disk.full = True
    for second in range(5):
        writer.append(TASKS, [task(second)])
    assert (writer.waiting, writer.dropped) == (3, 2)
    disk.full = False
    writer.flush()
    assert [(row["at"] - NOON).seconds for row in rows_of(tmp_path)] == [2, 3, 4]


def test_what_a_kill_left_hidden_is_swept_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "sites" / "day=2026-03-01"
    folder.mkdir(parents=True)
    (folder / ".part-1-1.parquet.writing").write_bytes(b"half")
    (tmp_path / "sites" / ".day=2026-02-01.dropped").mkdir()
    (folder / "part-1-2.parquet").write_bytes(b"whole")
    (tmp_path / ".lock").touch()
    Writer(LocalStorage(tmp_path), clock=HandClock())
    assert [str(p) for p in files(tmp_path)] == [".lock", "sites/day=2026-03-01/part-1-2.parquet"]
    assert sweep(LocalStorage(tmp_path)) == 0


def test_a_slow_disk_holds_up_only_whoever_writes(tmp_path: Path) -> None:
    has_begun, go_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
            has_begun.set()
            assert go_on.wait(20)
            super().write(path, rows, metadata)

    writer = Writer(LocalStorage(tmp_path, SlowDisk()), roll_rows=1, clock=HandClock())
    first = threading.Thread(target=writer.append, args=(TASKS, [task(0)]))
    first.start()
    assert has_begun.wait(20)
    second = threading.Thread(target=writer.append, args=(TASKS, [task(1)]))
    second.start()
    second.join(20)
    held_up = second.is_alive()
    go_on.set()
    first.join()
    second.join()
    assert not held_up
    assert writer.waiting == 1
    writer.flush()
    assert len(rows_of(tmp_path)) == 2


def test_threads_append_and_flush_at_once_and_each_row_is_there_once(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), roll_rows=50)

    def work(subtask: int) -> None:
        for second in range(100):
            writer.append(TASKS, [task(second, subtask=subtask)])
            if second % 30 == 0:
                writer.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    rows = sorted((row["subtask"], row["at"]) for row in rows_of(tmp_path))
    assert rows == [(n, task(second)["at"]) for n in range(4) for second in range(100)]
