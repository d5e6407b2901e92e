"""Sites of different speed, with the kernel's own control groups."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from speck.errors import PermanentError
from speck.fog.cgroups import Quotas, into
from speck.fog.process import Command, spawn
from speck.fog.sites import Fog
from tests.quotas import groups, needs_quotas
from tests.waiting import wait_for

NOBODY = 65534
SPIN = "import time\nwhile True: pass"


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@pytest.fixture
def quotas(tmp_path: Path) -> Iterator[Quotas]:
    needs_quotas()
    quotas = Quotas(tmp_path)
    yield quotas
    quotas.release()


def test_a_process_gets_its_share_of_a_core(quotas: Quotas, tmp_path: Path) -> None:
    group = quotas.hold("edge-a", 0.2)
    command = Command("spin", [sys.executable, "-c", SPIN], tmp_path, tmp_path / "spin.log")
    process = spawn(into(group, command))
    try:
        began = time.monotonic()
        wait_for(lambda: cpu_s(process.pid) >= 0.3, "its use of the CPU")
        # never more than the quota; less on a busy machine
        assert time.monotonic() - began > 0.3 / 0.2 * 0.9
        assert str(process.pid) in (group / "cgroup.procs").read_text().split()
    finally:
        process.kill()


@contextmanager
def as_nobody() -> Iterator[None]:
    """As far as the kernel is concerned we are another user than root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_whoever_may_not_is_told_so(tmp_path: Path) -> None:
    refusal = r"the speed 0\.25: only root may set a CPU quota"
    with as_nobody(), pytest.raises(PermanentError, match=refusal):
        Quotas(tmp_path).hold("edge-a", 0.25)
    assert groups(tmp_path) == []


def test_the_group_of_a_fog_that_never_came_up_is_removed(tmp_path: Path) -> None:
    needs_quotas()
    Quotas(tmp_path).hold("edge-a", 0.5)  # and then the launcher was killed
    assert len(groups(tmp_path)) == 1
    Fog(tmp_path).down()
    assert groups(tmp_path) == []
