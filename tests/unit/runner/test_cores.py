"""How many cores programs may use, on folders that look like control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speck.runner.cores import count_cores

ALL = len(os.sched_getaffinity(0))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, ALL),
        ({"a/b": "max 100000", "a": "max 100000"}, ALL),
        ({"a/b": "50000 100000"}, 0.5),
        ({"a/b": "max 100000", "a": "25000 100000"}, 0.25),
        ({"a/b": "nonsense", "a": "10000000 100000"}, ALL),
        ({"a/b": "1 0"}, ALL),
    ],
)
def test_a_quota_of_a_group_or_of_one_above_it(
    tmp_path: Path, quotas: dict[str, str], cores: float
) -> None:
    write(tmp_path / "own", "0::/a/b\n")
    for group, text in quotas.items():
        write(tmp_path / "mount" / group / "cpu.max", text)
    assert count_cores(tmp_path / "own", tmp_path / "mount") == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", ALL), ("50000", 0.5)])
def test_groups_of_version_1_have_the_period_apart(
    tmp_path: Path, quota: str, cores: float
) -> None:
    write(tmp_path / "own", "9:name=systemd:/\n4:cpuacct,cpu:/fog\n0::/\n")
    write(tmp_path / "mount/cpu/fog/cpu.cfs_quota_us", quota)
    write(tmp_path / "mount/cpu/fog/cpu.cfs_period_us", "100000")
    assert count_cores(tmp_path / "own", tmp_path / "mount") == cores


def test_without_control_groups_all_cores_count(tmp_path: Path) -> None:
    assert count_cores(tmp_path / "own", tmp_path / "mount") == ALL
    assert 0 < count_cores() <= ALL
