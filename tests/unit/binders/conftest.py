"""A server that answers as Flink does, or otherwise, and a binder on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from binders.flink.engine import FlinkEngine
from speck.binding import Target
from tests.serving import serving
from tests.unit.binders.fake_flink import Fake


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    with serving(server):
        yield server
        server.over.set()


@pytest.fixture
def engine(fake: Fake) -> Iterator[FlinkEngine]:
    engine = FlinkEngine(Target(fake.url, timeout_s=5.0))
    yield engine
    engine.close()
