"""Maintenance: what is merged and deleted, and the state after a kill or on a bad disk."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from speck.errors import TransientError
from speck.metrics.dataset import maintenance
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.reading import read, scan
from speck.metrics.dataset.schema import SITES, TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import (
    NOON,
    DiedError,
    FullDisk,
    HandClock,
    MortalDisk,
    list_paths,
    site,
    task,
)

TOMORROW = NOON + timedelta(days=1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five files of one day, the third with a row of the second again."""
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    for second in (0, 1, 1, 3, 4):
        writer.append(TASKS, [task(second, subtask=0), task(second + 0.5, subtask=1)])
        writer.flush()
    return tmp_path


def rows(root: Path) -> list[dict]:
    all_rows = read(LocalStorage(root), TASKS).to_pylist()
    return sorted(all_rows, key=lambda row: (row["subtask"], row["at"]))


def test_a_day_that_is_over_becomes_one_file_in_order(root: Path) -> None:
    before = rows(root)
    result = maintain(LocalStorage(root), TOMORROW, 30)
    assert (result.merged, result.written, result.dropped_days) == (5, 1, [])
    (path,) = list_paths(root, TASKS)
    assert path.name.startswith("compact-1772366400000-")
    assert rows(root) == before
    assert scan(LocalStorage(root), TASKS).duplicates == 0
    order = [(row["subtask"], row["at"]) for row in pq.ParquetFile(path).read().to_pylist()]
    assert order == sorted(order)
    assert len(order) == 8


def test_tending_again_does_nothing(root: Path) -> None:
    maintain(LocalStorage(root), TOMORROW, 30)
    before = list_paths(root, TASKS)
    assert maintain(LocalStorage(root), TOMORROW, 30).written == 0
    assert list_paths(root, TASKS) == before


def test_a_day_is_left_alone_until_rows_can_come_no_more(root: Path) -> None:
    midnight = TOMORROW.replace(hour=0)
    assert maintain(LocalStorage(root), midnight + timedelta(minutes=9), 30).merged == 0
    assert maintain(LocalStorage(root), midnight + timedelta(minutes=10), 30).merged == 5


def test_many_files_of_today_are_merged_and_what_was_merged_is_left_alone(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "OPEN_PARTS", 5)
    assert maintain(LocalStorage(root), NOON, 30).merged == 5
    writer = Writer(LocalStorage(root), clock=HandClock(NOON + timedelta(minutes=1)))
    for second in range(60, 64):
        writer.append(TASKS, [task(second)])
        writer.flush()
    assert maintain(LocalStorage(root), NOON, 30).merged == 0
    assert maintain(LocalStorage(root), TOMORROW, 30).merged == 5


def test_files_that_are_large_enough_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TARGET_ROWS", 4)
    assert maintain(LocalStorage(root), TOMORROW, 30).written == 2
    assert len(list_paths(root, TASKS)) == 3
    before = rows(root)
    assert maintain(LocalStorage(root), TOMORROW, 30).written == 0
    assert rows(root) == before


def test_rows_that_come_late_are_merged_too(root: Path) -> None:
    maintain(LocalStorage(root), TOMORROW, 30)
    writer = Writer(LocalStorage(root), clock=HandClock(TOMORROW))
    writer.append(TASKS, [task(9)])
    writer.flush()
    assert maintain(LocalStorage(root), TOMORROW, 30).merged == 2
    assert len(list_paths(root, TASKS)) == 1
    assert len(rows(root)) == 9


def test_only_whole_days_go_and_only_when_old_enough(tmp_path: Path) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    for day in range(4):
        writer.append(TASKS, [task(day * 86_400)])
        writer.append(SITES, [site(day * 86_400)])
    writer.flush()
    # two days before the end of the third day, but for a second
    now = (NOON + timedelta(days=4)).replace(hour=0) - timedelta(seconds=1)
    assert [day.day for day in maintain(LocalStorage(tmp_path), now, 2).dropped_days] == [1]
    later = now + timedelta(seconds=1)
    assert [day.day for day in maintain(LocalStorage(tmp_path), later, 2).dropped_days] == [2]
    assert [at.day for at in read(LocalStorage(tmp_path), TASKS)["at"].to_pylist()] == [3, 4]
    assert [at.day for at in read(LocalStorage(tmp_path), SITES)["at"].to_pylist()] == [3, 4]
    assert maintain(LocalStorage(tmp_path), now + timedelta(days=999), 0).dropped_days == []


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("step", range(1, 8))
def test_a_kill_at_any_step_of_a_compaction_loses_and_repeats_nothing(
    root: Path, step: int, half: bool
) -> None:
    before = rows(root)
    with pytest.raises(DiedError):
        maintain(LocalStorage(root, MortalDisk(step, half=half)), TOMORROW, 30)
    assert rows(root) == before
    Writer(LocalStorage(root))
    maintain(LocalStorage(root), TOMORROW, 30)
    assert len(list_paths(root, TASKS)) == 1
    assert rows(root) == before
    assert not list(root.rglob("*.writing"))


def test_sources_that_a_kill_left_are_removed_and_not_merged_again(root: Path) -> None:
    with pytest.raises(DiedError):
        maintain(LocalStorage(root, MortalDisk(3)), TOMORROW, 30)
    assert len(list_paths(root, TASKS)) == 6
    assert maintain(LocalStorage(root), TOMORROW, 30).merged == 0
    (path,) = list_paths(root, TASKS)
    assert path.name.startswith("compact-")


@pytest.mark.parametrize("step", [1, 2])
def test_a_kill_while_days_are_dropped_leaves_none_by_half(tmp_path: Path, step: int) -> None:
    writer = Writer(LocalStorage(tmp_path), clock=HandClock())
    writer.append(TASKS, [task(composition="a"), task(composition="b"), task(86_400)])
    writer.flush()
    now = NOON + timedelta(days=2)
    with pytest.raises(DiedError):
        maintain(LocalStorage(tmp_path, MortalDisk(step, half=True)), now, 1)
    assert [at.day for at in read(LocalStorage(tmp_path), TASKS)["at"].to_pylist()] == [2]
    maintain(LocalStorage(tmp_path), now, 1)
    assert [path.name for path in (tmp_path / "tasks").iterdir()] == ["day=2026-03-02"]


def test_a_damaged_file_is_named_and_left_where_it_is(root: Path) -> None:
    bad = list_paths(root, TASKS)[1]
    bad.write_bytes(bad.read_bytes()[:100])
    result = maintain(LocalStorage(root), TOMORROW, 30)
    assert [damaged.path for damaged in result.damaged] == [str(bad)]
    assert result.merged == 4
    assert bad.exists()
    assert len(rows(root)) == 8


def test_a_full_disk_is_told_and_harms_nothing(root: Path) -> None:
    before = rows(root)
    disk = FullDisk()
    disk.full = True
    with pytest.raises(TransientError, match=r"cannot maintain the metrics below .*No space left"):
        maintain(LocalStorage(root, disk), TOMORROW, 30)
    assert rows(root) == before
    assert len(list_paths(root, TASKS)) == 5
    assert not list(root.rglob("*.writing"))


def test_a_compacted_file_names_its_sources(root: Path) -> None:
    names = [path.name for path in list_paths(root, TASKS)]
    maintain(LocalStorage(root), TOMORROW, 30)
    (path,) = list_paths(root, TASKS)
    assert json.loads(pq.read_metadata(path).metadata[b"speck.sources"]) == names


def test_there_is_nothing_to_tend(tmp_path: Path) -> None:
    result = maintain(LocalStorage(tmp_path / "none"), NOON, 30)
    assert (result.busy, result.merged, result.dropped_days) == (False, 0, [])
