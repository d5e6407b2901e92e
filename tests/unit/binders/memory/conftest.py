"""A world of memory binders, and a jar."""

from __future__ import annotations

from pathlib import Path

import pytest

from binders.memory import World


@pytest.fixture
def world() -> World:
    return World.reset()


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    file = tmp_path / "job.jar"
    file.write_bytes(b"jar")
    return file
