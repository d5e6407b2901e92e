"""Synced writes under kill -9, in a process of its own: it forks, and pytest has threads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("rounds", [5, pytest.param(10_000, marks=pytest.mark.long)])
def test_kill_9_loses_no_write_that_was_told_and_tears_none(rounds: int) -> None:
    bench = subprocess.run(
        [sys.executable, "-m", "bench.store", "--rounds", str(rounds), "--no-file"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (bench.returncode, bench.stderr) == (0, "")
    result = json.loads(bench.stdout)
    assert (result["rounds"], result["lost"], result["torn"]) == (rounds, 0, 0)
    assert result["writes_told"] > rounds
