"""An application over memory sites, for all tests of its routes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.api.bench import Bench, composition, job, open_bench
from tests.unit.api.scoped_field import Field


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def deployed(bench: Bench) -> Bench:
    """The application with a composition of two jobs that run."""
    bench.add_sites()
    answer = bench.client.post("/compositions?wait=30", json=composition(job("A"), job("B")))
    assert answer.json["state"] == "done"
    return bench


@pytest.fixture
def field(bench: Bench) -> Field:
    return Field(bench)
