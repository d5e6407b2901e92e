from __future__ import annotations

import os
from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.cgroups import Controller, Quotas, check_speeds, find_controller, into
from speck.fog.process import Command


def version_1(tmp_path: Path) -> Path:
    root = tmp_path / "cpu"
    root.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
        "cgroup /nowhere/cpuset cgroup rw,relatime,cpuset 0 0\n"
        f"cgroup {root} cgroup rw,relatime,cpu,cpuacct 0 0\n"
        "cgroup2 /nowhere/unified cgroup2 rw 0 0\n"
    )
    return mounts


def version_2(tmp_path: Path, controllers: str = "cpuset cpu memory") -> Path:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text("memory")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup2 {root} cgroup2 rw,nosuid 0 0\n")
    return mounts


def test_where_the_controller_is(tmp_path: Path) -> None:
    assert find_controller(version_1(tmp_path)) == Controller(tmp_path / "cpu", 1)
    other = tmp_path / "other"
    other.mkdir()
    assert find_controller(version_2(other)) == Controller(other / "cgroup", 2)


def test_a_system_without_the_controller(tmp_path: Path) -> None:
    for mounts in (version_2(tmp_path, "memory pids"), tmp_path / "no-such-file"):
        with pytest.raises(PermanentError, match=r"^cannot give sites different speeds: .*v1 or"):
            find_controller(mounts)
        Quotas(tmp_path, mounts).release()  # there can be none


def test_the_quota_in_version_1(tmp_path: Path) -> None:
    group = Quotas(tmp_path / "fog", version_1(tmp_path)).hold("edge-a", 0.25)
    assert group.parent == tmp_path / "cpu"
    assert group.name.endswith("-edge-a")
    assert (group / "cpu.cfs_quota_us").read_text() == "25000"
    assert (group / "cpu.cfs_period_us").read_text() == "100000"


def test_the_quota_in_version_2(tmp_path: Path) -> None:
    group = Quotas(tmp_path / "fog", version_2(tmp_path)).hold("cloud", 1.5)
    assert (tmp_path / "cgroup" / "cgroup.subtree_control").read_text() == "+cpu"
    assert (group / "cpu.max").read_text() == "150000 100000"


def test_a_very_slow_site_gets_the_least_quota_that_the_kernel_takes(tmp_path: Path) -> None:
    group = Quotas(tmp_path / "fog", version_2(tmp_path)).hold("edge-a", 0.01)
    assert (group / "cpu.max").read_text() == "1000 100000"


def test_a_quota_is_set_anew(tmp_path: Path) -> None:
    quotas = Quotas(tmp_path / "fog", version_2(tmp_path))
    quotas.hold("edge-a", 0.25)
    assert (quotas.hold("edge-a", 0.5) / "cpu.max").read_text() == "50000 100000"


def test_only_this_fogs_groups_are_removed(tmp_path: Path) -> None:
    mounts = version_1(tmp_path)
    ours, others = Quotas(tmp_path / "fog", mounts), Quotas(tmp_path / "other", mounts)
    groups = [ours.hold("edge-a", 0.5), ours.hold("edge-b", 0.5)]
    for group in groups:  # the kernel's files vanish with the folder, these do not
        for file in group.iterdir():
            file.unlink()
    other_group = others.hold("edge-a", 0.5)
    for _ in range(2):
        ours.release()
        assert list((tmp_path / "cpu").iterdir()) == [other_group]


def test_a_group_that_is_in_use_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = Quotas(tmp_path / "fog", version_1(tmp_path))
    quotas.hold("edge-a", 0.5)
    monkeypatch.setattr("speck.fog.cgroups._GONE_S", 0.0)
    with pytest.raises(PermanentError, match=r"^cannot remove the control group .*cgroup.procs"):
        quotas.release()


@pytest.mark.parametrize(
    ("user", "why"), [(1000, r"only root may .* run it as root, or leave"), (0, "--cgroupns=host")]
)
def test_a_quota_that_is_refused_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, why: str
) -> None:
    mounts = version_2(tmp_path)
    (tmp_path / "cgroup" / "cgroup.subtree_control").unlink()
    (tmp_path / "cgroup" / "cgroup.subtree_control").mkdir()  # cannot be read or written
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(PermanentError, match=rf"^cannot give edge-a the speed 0.25: .*{why}"):
        Quotas(tmp_path / "fog", mounts).hold("edge-a", 0.25)
    assert list((tmp_path / "cgroup").glob("speck*")) == []


def test_a_command_enters_the_group_before_it_begins(tmp_path: Path) -> None:
    command = Command("engine", ["java", "-cp", "a b", "Main"], tmp_path, tmp_path / "log")
    assert into(tmp_path / "g", command).argv == [
        *("/bin/sh", "-c", 'echo $$ > "$1" && shift && exec "$@"', "sh"),
        *(f"{tmp_path}/g/cgroup.procs", "java", "-cp", "a b", "Main"),
    ]


def test_speeds_that_cannot_be_had() -> None:
    cores = os.cpu_count() or 1
    check_speeds({"edge-a": 0.01, "cloud": cores}, ["edge-a", "cloud"])
    with pytest.raises(PermanentError, match=r"^cannot give edge-b a speed: this fog has edge-a"):
        check_speeds({"edge-b": 0.5}, ["edge-a"])
    for speed in (0, 0.001, cores + 0.1, float("nan")):
        with pytest.raises(PermanentError, match=r"^cannot give edge-a the speed .* 0.01 to"):
            check_speeds({"edge-a": speed}, ["edge-a"])
