"""Runners on folders of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binders.process.engine import ProcessEngine
from speck.binding import Target
from tests.channels import LocalChannel
from tests.runner_places import Open, Place
from tests.runners import LocalRunner


@pytest.fixture
def open_place(tmp_path: Path) -> Iterator[Open]:
    opened = []

    def open_one(**settings: Any) -> Place:
        folder = tmp_path / f"state-{len(opened)}"
        local = LocalRunner(folder, **settings)
        opened.append(local)
        return Place(folder, local, ProcessEngine(Target("", agent=LocalChannel(folder))))

    yield open_one
    for local in opened:
        local.stop()


@pytest.fixture
def place(open_place: Open) -> Place:
    return open_place()
