"""tools/beside.sh: two commands beside each other; either may fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[3] / "tools" / "beside.sh"


def run(log: Path, beside: str, front: str) -> subprocess.CompletedProcess[str]:
    command = [str(BESIDE), str(log), "sh", "-c", beside, "--", "sh", "-c", front]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("beside", "front", "status"),
    [("exit 0", "exit 0", 0), ("exit 3", "exit 0", 3), ("exit 0", "exit 4", 4),
     ("exit 3", "exit 4", 4)],
)  # fmt: skip
def test_the_exit_status_is_that_of_who_failed(
    tmp_path: Path, beside: str, front: str, status: int
) -> None:
    assert run(tmp_path / "log", beside, front).returncode == status


def test_they_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for what the other makes."""
    meet = "touch {mine}; while [ ! -e {other} ]; do sleep 0.01; done"
    a, b = tmp_path / "a", tmp_path / "b"
    beside, front = meet.format(mine=a, other=b), meet.format(mine=b, other=a)
    assert run(tmp_path / "log", beside, front).returncode == 0


def test_what_the_first_said_is_shown_only_when_it_failed(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "log"
    assert run(log, "echo fine", "exit 0").stderr == ""
    assert log.read_text() == "fine\n"
    assert "it was red\n" in run(log, "echo it was red >&2; exit 1", "exit 0").stderr
