"""Runners on folders of their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from binders.process.engine import ProcessEngine
from speck.binding import Target
from tests.channels import LocalChannel
from tests.runner_places import SHARED_GID, Open, Place, pick_users
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


@pytest.fixture
def isolated() -> Iterator[Place]:
    """A runner that is root, whose programs have users of their own, and a group together."""
    folder = Path("/tmp") / f"speck-test-{uuid4().hex[:8]}"
    folder.mkdir(mode=0o755)
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    (folder / "credentials").mkdir(mode=0o700)
    credentials = folder / "credentials"
    more: dict[str, Any] = {"python": python, "credentials": credentials}
    local = LocalRunner(folder, uids=pick_users(), shared_gid=SHARED_GID, **more)
    yield Place(folder, local, ProcessEngine(Target("", agent=LocalChannel(folder))))
    local.stop()
    shutil.rmtree(folder)
