"""Reading: each row once, of the requested range; damage is reported."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speck.metrics.dataset import reading
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.reading import list_files, may_hold, read, read_pieces, scan
from speck.metrics.dataset.schema import SITES, TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, HandClock, list_paths, site, task

DAY = 86_400


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(LocalStorage(tmp_path), clock=HandClock())


def put(writer: Writer, *rows: dict) -> None:
    writer.append(TASKS, rows)
    writer.flush()


def seconds(rows: pa.Table) -> list[float]:
    return sorted((at - NOON).total_seconds() for at in rows["at"].to_pylist())


def test_rows_come_with_their_composition_in_the_schema(writer: Writer) -> None:
    put(writer, task(0, busy_ms=2.5), task(0, composition="_alone"))
    table = read(writer.storage, TASKS)
    assert table.schema.names == [*TASKS.schema.names, "composition"]
    assert sorted(table["composition"].to_pylist()) == ["_alone", "c"]
    writer.append(SITES, [site()])
    writer.flush()
    assert read(writer.storage, SITES).schema.equals(SITES.schema)


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    assert read(LocalStorage(tmp_path / "none"), TASKS).num_rows == 0
    assert "composition" in read(LocalStorage(tmp_path / "none"), TASKS).schema.names


def test_since_is_in_and_until_is_not(writer: Writer) -> None:
    put(writer, *(task(second) for second in (0, 1, 2, DAY, 2 * DAY)))
    at = [NOON + timedelta(seconds=second) for second in (1, DAY)]
    assert seconds(read(writer.storage, TASKS, *at)) == [1, 2]
    assert seconds(read(writer.storage, TASKS, at[1])) == [DAY, 2 * DAY]
    assert seconds(read(writer.storage, TASKS, None, at[0])) == [0]
    assert len(list_paths(writer.storage.local, TASKS, at[1])) == 2


def test_one_composition(writer: Writer) -> None:
    put(writer, task(0, composition="a"), task(1, composition="b"))
    assert seconds(read(writer.storage, TASKS, composition="b")) == [1]
    assert len(list_paths(writer.storage.local, TASKS, composition="a")) == 1


def test_what_is_there_twice_is_read_once_and_counted(writer: Writer) -> None:
    put(writer, task(0, busy_ms=1.0), task(1))
    put(writer, task(0, busy_ms=1.0), task(2))
    result = scan(writer.storage, TASKS)
    assert seconds(result.rows) == [0, 1, 2]
    assert result.duplicates == 1


def test_a_large_day_is_read_in_pieces(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_ROWS", 10)
    for first in range(0, 40, 20):
        put(writer, *(task(hour * 600) for hour in range(first, first + 20)))
    pieces = list(read_pieces(writer.storage, TASKS))
    assert len(pieces) == 4
    assert sum(piece.rows.num_rows for piece in pieces) == 40
    assert seconds(read(writer.storage, TASKS)) == [n * 600 for n in range(40)]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_file_is_named_and_the_others_are_read(
    writer: Writer, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(writer, *(task(second, busy_ms=second * 1.1) for second in range(1000)))
    (bad,) = list_paths(writer.storage.local, TASKS)
    put(writer, task(2000))
    content = bytearray(bad.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    else:
        metadata = pq.read_metadata(bad).row_group(0).column(TASKS.schema.names.index("busy_ms"))
        content[metadata.dictionary_page_offset + metadata.total_compressed_size // 2] ^= 4
    bad.write_bytes(content)
    result = scan(writer.storage, TASKS)
    assert seconds(result.rows) == [2000]
    (fault,) = result.damaged
    assert fault.path == str(bad)
    with caplog.at_level(logging.WARNING):
        assert seconds(read(writer.storage, TASKS)) == [2000]
    assert f"cannot read {bad}" in caplog.text


def test_a_column_that_a_file_lacks_is_null(writer: Writer) -> None:
    put(writer, task(0, busy_ms=1.0))
    (path,) = list_paths(writer.storage.local, TASKS)
    fewer = pq.ParquetFile(path).read().drop_columns(["host_cpu", "idle_ms"])
    pq.write_table(fewer, path)
    (row,) = read(writer.storage, TASKS).to_pylist()
    assert (row["busy_ms"], row["host_cpu"], row["idle_ms"]) == (1.0, None, None)


def test_what_is_hidden_and_foreign_folders_are_not_read(writer: Writer) -> None:
    put(writer, task(0))
    (path,) = list_paths(writer.storage.local, TASKS)
    path.with_name(".part-1-1.parquet.writing").write_bytes(b"half")
    path.with_name(".x.parquet").write_bytes(b"half")
    (writer.storage.local / "tasks" / "day=2026-99-99").mkdir()
    (writer.storage.local / "tasks" / "notes").mkdir()
    assert list_paths(writer.storage.local, TASKS) == [path]
    assert scan(writer.storage, TASKS).damaged == ()


def test_while_somebody_reads_no_file_disappears(writer: Writer) -> None:
    put(writer, task(0))
    put(writer, task(1))
    later = NOON + timedelta(days=2)
    with reading.hold_files(writer.storage), reading.hold_files(writer.storage):
        assert maintain(writer.storage, later, 30).busy
    half = read_pieces(writer.storage, TASKS)
    next(half)
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(maintain(writer.storage, later, 30)))
    thread.start()
    thread.join()
    assert outcomes[0].busy
    half.close()
    assert maintain(writer.storage, later, 30).written == 1


def test_a_file_of_another_version_is_named_and_the_others_are_read(writer: Writer) -> None:
    """A column under its former name would otherwise silently be unknown."""
    put(writer, task(0, busy_ms=1.0))
    (path,) = list_paths(writer.storage.local, TASKS)
    rows = pq.ParquetFile(path).read()
    names = ["busy" if name == "busy_ms" else name for name in rows.schema.names]
    pq.write_table(rows.rename_columns(names), path)
    put(writer, task(2000))
    result = scan(writer.storage, TASKS)
    assert seconds(result.rows) == [2000]
    (fault,) = result.damaged
    assert str(fault) == (
        f"cannot read {path}: another version of speck wrote it: no table has a column busy;"
        " it is skipped: move it away"
    )
    (stored,) = [each for each in list_files(writer.storage, TASKS) if path.name == each.name]
    assert may_hold(writer.storage, stored, NOON, NOON) is None
