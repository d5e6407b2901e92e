from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from speck.cli.commands.runner import runner
from tests.waiting import wait_for


@pytest.mark.parametrize("text", ["61000", "61099-61000", "0-9", "nobody"])
def test_users_are_a_range_of_ids(tmp_path: Path, text: str) -> None:
    result = CliRunner().invoke(runner, ["--state-folder", str(tmp_path), "--as", text])
    assert result.exit_code == 2
    assert "write --as as FIRST-LAST" in result.output


def test_a_group_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    words = ["--state-folder", str(tmp_path), "--as", "61000-61001", "--group", "no-such-group"]
    result = CliRunner().invoke(runner, words)
    assert result.exit_code == 2
    assert "cannot use --group no-such-group: there is no such group" in result.output


def test_programs_run_as_root_only_if_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    result = CliRunner().invoke(runner, ["--state-folder", str(tmp_path)])
    assert result.exit_code == 2
    assert "programs would run as root: give --as" in result.output


def test_it_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "speck.cli", "runner", "--state-folder", str(tmp_path)]
    process = subprocess.Popen([*command, "--as", "root"])
    try:
        wait_for((tmp_path / "engine/status.json").exists, "its status", 60)
        second = subprocess.run([*command, "--as", "root"], capture_output=True, text=True)
        assert second.returncode == 1
        assert "another runner supervises programs" in second.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
