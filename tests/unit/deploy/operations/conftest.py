"""A reader whose drain a test speaks for."""

from __future__ import annotations

import pytest

from tests.unit.deploy.bench import Bench
from tests.unit.deploy.operations.readers import OLD, Reader, put, session


@pytest.fixture
def reader(bench: Bench) -> Reader:
    put(bench, session(OLD, "Old"))
    return Reader(bench)
