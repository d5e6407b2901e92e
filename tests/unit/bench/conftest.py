"""Tests of benchmarks and of their page: `make check-bench` runs them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the marks decide what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("bench")
