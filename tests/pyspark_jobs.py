"""The programs of edge_jobs/pyspark as modules, which they are not at a site."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.python_jobs import ROOT

JOBS = ROOT / "edge_jobs/pyspark"
TRACE = ROOT / "compositions/traffic/trace/trace.csv.gz"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program `<name>.py`; what it shares with others can be imported until the test ends."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(JOBS)])
    spec = importlib.util.spec_from_file_location(name, JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
