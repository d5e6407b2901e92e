"""Tests of benchmarks and of their page: `make check-bench` runs them alone."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)  # before the marks decide what is run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/unit/bench/"):
            item.add_marker("bench")
