"""`speck analyze`"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


def test_a_folder_that_cannot_be_analysed_is_told_in_words(speck: Run, tmp_path: Path) -> None:
    done = speck("analyze", "--dataset", str(tmp_path), "--master", "yarn")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: cannot analyse: 'yarn' is no master")


@pytest.mark.parametrize("window", ["0", "ten", "5x"])
def test_a_window_that_is_none_is_refused(speck: Run, window: str) -> None:
    done = speck("analyze", "--window", window)
    assert done.exit_code != 0
    assert "write 90s, 10m, 2h or 1d" in done.stderr
