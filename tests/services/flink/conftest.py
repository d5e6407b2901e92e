"""How Flink's REST API really behaves, and that the binder copes: each against a real Flink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flink_server import FlinkServer
from tests.services.flink.site import Site


@pytest.fixture
def site(flink: FlinkServer, trial_jar: Path) -> Iterator[Site]:
    site = Site(flink, trial_jar)
    yield site
    site.tidy()
    site.engine.close()
