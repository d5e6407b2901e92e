from __future__ import annotations

import os
import subprocess
from pathlib import Path

from speck.runner.lease import acquire_lease, is_held


def test_a_lease_ends_with_the_last_process_that_inherited_it(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    lease = acquire_lease(file)
    assert lease is not None
    assert acquire_lease(file) is None
    program = subprocess.Popen(["sleep", "600"], pass_fds=(lease,))
    os.close(lease)
    assert is_held(file)
    program.kill()
    program.wait()
    assert not is_held(file)
    assert not is_held(tmp_path / "nowhere/lease")
