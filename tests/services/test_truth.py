"""`bench-truth` for a shorter time: measurements match the settings, and the advice is right."""

from __future__ import annotations

import os

import pytest

from bench.truth import run

TIMED = (
    *("core-seconds", "true processing", "share of the machine", "cores of", "pace of"),
    *("jobs that", "bytes/s between sites saved"),
)
"""Figures that a busy machine changes; what follows from them, too."""


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set CPU quotas")
def test_what_is_measured_is_what_was_set() -> None:
    truths = run(45.0)
    busy = any(truth.name.startswith("share of") and not truth.ok for truth in truths)
    looked_at = [truth for truth in truths if not (busy and truth.name.startswith(TIMED))]
    assert [truth for truth in looked_at if not truth.ok] == []
    assert any(truth.name == "ranking" for truth in looked_at)
    assert any(truth.name == "bytes/s between sites after" for truth in looked_at)
