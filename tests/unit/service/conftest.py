"""A service over three memory sites, for all tests of the use cases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.watching import Time, Watched


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """edge-a, edge-b and cloud share storage; edge-c has its own."""
    alone = {**site_body("edge-c"), "labels": {}}
    sites = [site_body(name) for name in ("edge-a", "edge-b", "cloud")]
    with memory_service(tmp_path, [*sites, alone]) as service:
        yield service


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A watch of edge-a, edge-b and cloud."""
    time = Time()
    sites = map(site_body, ("edge-a", "edge-b", "cloud"))
    with memory_service(tmp_path, sites, clock=time) as service:
        watched = Watched(service, time)
        yield watched
        watched.watch.close()
