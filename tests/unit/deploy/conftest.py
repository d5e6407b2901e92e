"""A service over two memory sites, for all tests of changes; a bench of three for operations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from binders.memory import World
from speck.clock import SystemClock
from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.unit.deploy.bench import Bench, RecordingRecords


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """edge-a and cloud share storage."""
    with memory_service(tmp_path, [site_body("edge-a"), site_body("cloud")]) as opened:
        yield opened


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordingRecords]:
    World.reset(slots=64)
    opened = RecordingRecords.open(tmp_path / "store", SystemClock())
    assert isinstance(opened, RecordingRecords)
    opened.log = []
    yield opened
    opened.store.close()


@pytest.fixture
def bench(tmp_path: Path, records: RecordingRecords) -> Bench:
    return Bench(tmp_path, records)
