"""Damaged lengths in LevelDB's own files, and records that were cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.store.leveldb import Store
from speck.store.wal import find_damage

HEADER = 7


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of a store after some writes."""
    path = tmp_path / "store"
    store = Store.create(path, {})
    for number in range(5):
        store.write({"a": {"text": "x" * 100 * number}})
    store.close()
    (log,) = path.glob("*.log")
    return log


def records_of(content: bytes) -> list[tuple[int, int]]:
    """(offset, length of the payload) of each record."""
    records, at = [], 0
    while at < len(content):
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        records.append((at, length))
        at += HEADER + length
    return records


def test_a_whole_log_is_sound(log: Path) -> None:
    assert len(records_of(log.read_bytes())) == 5
    assert find_damage(log) is None


def test_a_log_that_was_cut_anywhere_is_sound(log: Path) -> None:
    content = log.read_bytes()
    for end in range(len(content)):
        log.write_bytes(content[:end])
        assert find_damage(log) is None, end


def test_any_length_that_is_too_great_is_found(log: Path) -> None:
    content = log.read_bytes()
    for at, length in records_of(content):
        rest = len(content) - at - HEADER
        for wrong in {rest + 1, rest + 1000, 65535, length | 0x8000}:
            damaged = bytearray(content)
            damaged[at + 4 : at + 6] = wrong.to_bytes(2, "little")
            log.write_bytes(damaged)
            assert find_damage(log) == at


def test_an_empty_file_is_sound(log: Path) -> None:
    log.write_bytes(b"")
    assert find_damage(log) is None


def test_only_the_last_block_is_judged_since_leveldb_tells_of_the_others(log: Path) -> None:
    content = log.read_bytes()
    log.write_bytes(b"\0" * 32768 + content[:-1])
    assert find_damage(log) is None
    damaged = bytearray(content)
    damaged[5] ^= 0x40
    log.write_bytes(b"\0" * 32768 + damaged)
    assert find_damage(log) == 32768
