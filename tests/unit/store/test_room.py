"""Files beside the store leave the room that it needs."""

from __future__ import annotations

import shutil
from io import BufferedWriter
from pathlib import Path
from types import SimpleNamespace

import pytest

from speck.errors import StoreFullError
from speck.store import room
from speck.store.leveldb import Store, measure_room
from speck.store.room import SparingFile

MIB = 1 << 20
RESERVE = 16 * MIB


def test_it_stops_before_the_store_lacks_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, free_at_first = tmp_path / "file", 2 * RESERVE + 3 * MIB

    def measure(folder: Path) -> tuple[int, int]:
        written = file.stat().st_size if file.exists() else 0
        return free_at_first - written, RESERVE

    monkeypatch.setattr(room, "measure_room", measure)
    with (
        pytest.raises(StoreFullError, match=r"^cannot export: \d+ bytes are free on the disk of"),
        SparingFile(file, tmp_path, "export") as out,
    ):
        while True:
            out.write(bytes(64 * 1024))
    assert 3 * MIB <= file.stat().st_size <= 5 * MIB


def test_nothing_is_created_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "measure_room", lambda folder: (2 * RESERVE - 1, RESERVE))
    with pytest.raises(StoreFullError):
        SparingFile(tmp_path / "file", tmp_path, "export")
    assert list(tmp_path.iterdir()) == []


def test_it_is_a_file_like_any_other(tmp_path: Path) -> None:
    with BufferedWriter(SparingFile(tmp_path / "file", tmp_path, "export")) as out:
        out.write(b"1" * (3 * MIB))
        assert out.tell() == 3 * MIB
    assert (tmp_path / "file").stat().st_size == 3 * MIB


def test_a_file_system_that_tells_no_size_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tmpfs without a limit (`size=0`), and some network file systems."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=0))
    free, reserve = measure_room(tmp_path)
    assert free - (1 << 40) > 2 * reserve
    with SparingFile(tmp_path / "file", tmp_path, "export") as out:
        out.write(bytes(2 * MIB))
    Store.create(tmp_path / "store", {}).close()
