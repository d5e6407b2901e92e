"""A plan is the same in each process, in whatever order sets of names and links are there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def print_plans(hash_seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.printed_plans"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    first, second = print_plans(1), print_plans(2)
    assert "start" in first
    assert first == second
