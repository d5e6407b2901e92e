"""Sites that share no storage, and what keeps their states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.service import Service
from tests.memory_fog import MemoryKeeper, memory_service, site_body
from tests.unit.deploy.operations.state_transfer.moves import SITES


@pytest.fixture
def keeper() -> MemoryKeeper:
    return MemoryKeeper()


@pytest.fixture
def service(tmp_path: Path, keeper: MemoryKeeper) -> Iterator[Service]:
    with memory_service(tmp_path, [site_body(site) for site in SITES], keeper=keeper) as opened:
        yield opened
