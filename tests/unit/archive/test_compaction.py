"""Compaction of archives."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speck.archive.compaction import REPEATABLE, compact
from speck.archive.files import STAGING, list_files, open_archive, parse_batch, parse_day
from speck.errors import InvalidError, NotFoundError, TransientError
from speck.metrics.dataset.local import Disk, LocalStorage
from speck.metrics.dataset.reading import LOCK
from tests.archives import LocalPlace, read_rows, store_batch

TODAY = date(2026, 11, 28)
OLD, NEW = "day=2026-11-27/site=A", "day=2026-11-28/site=A"
WRITER = "5f" * 16


def names_of(root: Path, folder: str) -> list[str]:
    return sorted(path.name for path in (root / "detections" / folder).iterdir())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten batches, each with a row of yesterday and one of today."""
    place = LocalPlace(tmp_path)
    for number in range(10):
        rows = {OLD: [2 * number], NEW: [2 * number + 1]}
        store_batch(place, tmp_path, WRITER, number, rows)
    return tmp_path


def test_past_days_are_joined_but_for_the_last_batches(root: Path) -> None:
    report = compact(LocalStorage(root), TODAY)
    assert (report.joined, report.written, report.damaged) == (10 - REPEATABLE, 1, [])
    joined, *rest = sorted(names_of(root, OLD), reverse=True)
    assert joined.startswith("compact-")
    numbers = [batch.number for name in rest if (batch := parse_batch(name)) is not None]
    assert sorted(numbers) == list(range(10 - REPEATABLE, 10))
    assert len(names_of(root, NEW)) == 10
    assert read_rows(LocalStorage(root)) == list(range(20))
    again = compact(LocalStorage(root), TODAY)
    assert (again.joined, again.written) == (0, 0)


def test_the_next_day_takes_what_is_joined_already_along(root: Path) -> None:
    compact(LocalStorage(root), TODAY)
    for number in range(10, 20):
        store_batch(LocalPlace(root), root, WRITER, number, {OLD: [10 + number]})
    report = compact(LocalStorage(root), date(2026, 11, 29))
    # yesterday: the file of before, the four batches held back then, six of the new ones
    assert (report.joined, report.written) == (11 + 10, 2)
    assert read_rows(LocalStorage(root)) == list(range(30))


def test_what_a_joined_file_replaces_counts_no_longer(root: Path) -> None:
    class BadDisk(Disk):
        def remove(self, path: Path) -> None:
            raise OSError(5, "Input/output error")

    with pytest.raises(TransientError, match=r"cannot compact the archive .*: Input/output error"):
        compact(LocalStorage(root, BadDisk()), TODAY)
    assert len(names_of(root, OLD)) == 11
    assert read_rows(LocalStorage(root)) == list(range(20))
    compact(LocalStorage(root), TODAY)
    assert len(names_of(root, OLD)) == 1 + REPEATABLE


def test_what_killed_runs_were_writing_is_removed_but_not_what_may_be_under_way(root: Path) -> None:
    midnight = datetime(2026, 11, 27, tzinfo=UTC).timestamp()
    for name, at in (("a-1", midnight - 1), ("a-2", midnight)):
        for part in ("_temporary/0/part-0.parquet", "part-1.parquet"):
            file = root / STAGING / name / part
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, (at, at))
    os.utime(root / STAGING / "a-2/part-1.parquet", (0, 0))
    (root / STAGING / "b-3").mkdir()
    for _ in range(2):
        compact(LocalStorage(root), TODAY)
        assert sorted(each.name for each in (root / STAGING).iterdir()) == ["a-2", "b-3"]


def test_a_damaged_file_is_named_and_stays(root: Path) -> None:
    damaged = root / "detections" / OLD / names_of(root, OLD)[2]
    damaged.write_bytes(b"PAR1 and no more")
    report = compact(LocalStorage(root), TODAY)
    assert [each.path for each in report.damaged] == [str(damaged)]
    assert report.joined == 9 - REPEATABLE
    assert damaged.exists()


def test_files_of_several_types_stay_apart(root: Path) -> None:
    other = root / "detections" / OLD / f"batch-{'6f' * 16}-000000001-00-0.parquet"
    pq.write_table(pa.table({"row": ["text"]}), other)
    for number in (2, 3, 4, 5):
        pq.write_table(pa.table({"row": [1]}), Path(str(other).replace("01-00", f"0{number}-00")))
    report = compact(LocalStorage(root), TODAY)
    assert report.written == 0
    assert [Path(each.path).name for each in report.damaged] == ["site=A"]
    assert len(names_of(root, OLD)) == 15


def test_columns_that_older_files_lack_are_null(root: Path) -> None:
    name = names_of(root, OLD)[0]
    pq.write_table(pa.table({"row": [0], "lane": [3]}), root / "detections" / OLD / name)
    assert compact(LocalStorage(root), TODAY).written == 1
    (file,) = (root / "detections" / OLD).glob("compact-*")
    assert pq.ParquetFile(file).read().column("lane").to_pylist() == [3, *[None] * 5]


def test_it_does_nothing_while_somebody_reads(root: Path) -> None:
    with (root / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert compact(LocalStorage(root), TODAY).busy
    assert not compact(LocalStorage(root), TODAY).busy


def test_a_folder_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFoundError, match=r"cannot find an archive at .*: name the folder"):
            compact(LocalStorage(folder), TODAY)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InvalidError, match="cannot use 'ftp://host/a' for archives: write file"):
        open_archive("ftp://host/a")


def test_days_select_folders(root: Path) -> None:
    store_batch(
        LocalPlace(root),
        root,
        WRITER,
        10,
        {"day=none/site=none": [99], "day=2026-99-99/site=A": [98]},
    )
    storage = LocalStorage(root)
    assert len(list_files(storage, "detections")) == 22
    assert len(list_files(storage, "detections", first=TODAY)) == 10
    assert len(list_files(storage, "detections", last=date(2026, 11, 27))) == 10
    assert len(list_files(storage, "detections", TODAY, TODAY)) == 10
    assert parse_day("day=2026-99-99/site=A") is None
    assert parse_day(OLD) == date(2026, 11, 27)
