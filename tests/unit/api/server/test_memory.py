"""Memory that is not used any more goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from speck.api.server import memory
from speck.api.server.memory import GROWN_BYTES, IdleMemory
from speck.clock import SystemClock

FILLED = """
import sys
from speck.api.server import memory
from speck.clock import SystemClock

memory.limit_idle_memory()
idle = memory.IdleMemory(SystemClock())
before = memory.read_resident_bytes()
kept, filled, size = [], [], int(sys.argv[1])
for number in range(40_000):  # small ones that stay, between larger ones that go
    filled.append(b"x" * size)
    if number % 500 == 0:
        kept.append(b"y" * size)
most = memory.read_resident_bytes()
del filled
for _ in range(3):
    idle.look()
print((most - before) >> 20, (memory.read_resident_bytes() - before) >> 20)
"""


def test_holes_between_what_stays_are_given_back() -> None:
    result = subprocess.run(
        [sys.executable, "-c", FILLED, "4000"], capture_output=True, text=True, check=True
    )
    most, after = map(int, result.stdout.split())
    assert most > 100
    assert after < 20


def test_the_size_is_counted_in_the_systems_own_pages() -> None:
    resident = psutil.Process().memory_info().rss
    assert abs(memory.read_resident_bytes() - resident) < resident / 10


def test_pages_may_be_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 KiB on a Raspberry Pi 5, 64 KiB with some kernels for servers."""
    statm = tmp_path / "statm"
    statm.write_text("900 100 30 1 0 200 0\n")
    monkeypatch.setattr(memory, "_STATM", statm)
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 16384}.__getitem__)
    assert memory.read_resident_bytes() == 100 * 16384


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the process is said to hold at each look, in megabytes; the last one stays."""
    megabytes = [100]

    def read() -> int:
        return (megabytes.pop(0) if len(megabytes) > 1 else megabytes[0]) << 20

    monkeypatch.setattr(memory, "read_resident_bytes", read)
    return megabytes


def test_it_waits_until_the_process_does_not_grow(
    sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(memory, "trim", lambda: trims.append(1))
    idle = IdleMemory(SystemClock())
    expected = []
    grown = 2 * GROWN_BYTES >> 20
    for size, is_trimmed in (
        (101, False),
        (101 + grown, False),  # it grows
        (101 + 2 * grown, False),
        (101 + 2 * grown, True),
        (101 + 2 * grown, False),  # nothing more came back
        (90, False),
        (90 + grown, False),
        (90 + grown, True),
    ):
        sizes[:] = [size]
        idle.look()
        expected += [1] * is_trimmed
        assert trims == expected, size
