"""Control groups of programs: on folders that look like some, and on real ones where there are."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from speck.runner import groups
from speck.runner.groups import Group, find_groups, limits_memory
from tests.waiting import wait_for


def find_root() -> Path | None:
    """Where this machine has control groups of version 2, and lets us make some."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(folder, os.W_OK):
            return Path(folder)
    return None


@pytest.fixture
def group() -> Iterator[Group]:
    root = find_root()
    if root is None:
        pytest.xfail("this machine lets nobody make control groups of version 2")
    group = Group(root / f"speck-test-{uuid4().hex[:8]}")
    group.make(None)
    yield group
    group.kill()
    with suppress(AssertionError):
        wait_for(lambda: not group.members(), "its processes to end", 10)
    group.remove()


def test_a_group_holds_whatever_a_program_starts(group: Group) -> None:
    program = subprocess.Popen(["sh", "-c", "read x; setsid sleep 600 & wait"], stdin=-1)
    group.enter(program.pid)
    assert program.stdin is not None
    program.stdin.close()
    wait_for(lambda: len(group.members()) == 2, "the process that left its session", 10)
    group.kill()
    assert program.wait(10) == -signal.SIGKILL
    wait_for(lambda: not group.members(), "all to end", 10)


def test_limits_are_written_where_the_controller_is(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "memory.oom.group"):
        (tmp_path / name).write_text("max")
    group = Group(tmp_path)
    group.make(64 << 20)
    assert (tmp_path / "memory.max").read_text() == str(64 << 20)
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "memory.oom.group").read_text() == "1"
    assert group.limits_memory
    (tmp_path / "cpu.stat").write_text("usage_usec 2500\nuser_usec 1000\n")
    (tmp_path / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert group.cpu_ms() == 2.5
    assert group.count_kills() == 1


def test_what_a_group_does_not_count_is_not_known(tmp_path: Path) -> None:
    group = Group(tmp_path)
    assert (group.cpu_ms(), group.count_kills(), group.members()) == (None, 0, [])
    assert not group.limits_memory


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """What looks like the group of a unit."""
    folder = tmp_path / "unit"
    for each in (folder, folder / "runner", folder / "programs"):
        each.mkdir()
        (each / "cgroup.subtree_control").write_text("")
    return folder


def test_only_a_group_that_is_delegated_is_used(
    unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for own in (unit, unit / "runner"):
        monkeypatch.setattr(groups, "_find_own", lambda own=own: own)
        assert find_groups(None) is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "getxattr", lambda folder, _: b"1" if folder == unit else b"0")
            assert find_groups(None) == unit / "programs"


@pytest.mark.parametrize("subgroup", [False, True])
def test_systemd_can_start_a_runner_again_while_programs_live(
    unit: Path, monkeypatch: pytest.MonkeyPatch, subgroup: bool
) -> None:
    """It puts the next one into the unit's group, which takes none if it distributes a controller;
    unless the unit has a subgroup for it."""
    monkeypatch.setattr(groups, "_find_own", lambda: unit / "runner" if subgroup else unit)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"1")
    programs = find_groups(None)
    assert programs == unit / "programs"
    expected = "+memory" if subgroup else ""
    for folder in (unit, programs):
        assert (folder / "cgroup.subtree_control").read_text() == expected
    assert not limits_memory(programs), "the kernel writes what is enabled"
    (programs / "cgroup.subtree_control").write_text("cpu memory")
    assert limits_memory(programs)
