"""A service over two memory sites, for all tests of changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.service import Service
from tests.memory_fog import memory_service, site_body


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """edge-a and cloud share storage."""
    with memory_service(tmp_path, [site_body("edge-a"), site_body("cloud")]) as opened:
        yield opened
