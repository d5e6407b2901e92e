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
from speck.fog.cgroups import Quotas, find_controller, into
from speck.fog.process import Command, spawn
from speck.fog.sites import Fog
from tests.waiting import wait_for

NOBODY = 65534
SPIN = "import time\nwhile True: pass"


def needs_quotas() -> None:
    """Skip where the kernel's quota cannot be had; the sentence is tested then, instead."""
    if os.geteuid() != 0:
        pytest.skip("only root may set CPU quotas")
    probe = Quotas(Path("/probe"))
    try:
        probe.hold("probe", 0.5)
    except PermanentError as error:
        pytest.skip(str(error))
    finally:
        probe.release()


def groups(folder: Path) -> list[Path]:
    root = find_controller().root
    return list(root.glob(f"{Quotas(folder)._prefix}*"))


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


def test_an_engine_with_a_quota_comes_and_goes(tmp_path: Path) -> None:
    needs_quotas()
    fog = Fog(tmp_path / "fog")
    try:
        fog.up(edges=1, slots=2, clouds=0, speeds={"edge-a": 0.5})
        (site,) = fog.status()
        (group,) = groups(fog.folder)
        assert site.up
        assert site.speed == 0.5
        pids = {entry.what: str(entry.pid) for entry in site.processes}
        assert (group / "cgroup.procs").read_text().split() == [pids["engine"]]
        with pytest.raises(PermanentError, match="another one of 1 sites runs there"):
            Fog(fog.folder).up(edges=1, slots=2, clouds=0)
        fog.kill("edge-a")
        fog.start("edge-a")
        (again,) = fog.status()
        engine = next(entry for entry in again.processes if entry.what == "engine")
        assert (group / "cgroup.procs").read_text().split() == [str(engine.pid)]
    finally:
        fog.down()
    assert groups(fog.folder) == []
