"""Files that wait to be sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from speck.api import downloads
from speck.api.downloads import spool
from speck.errors import StoreFullError
from speck.store import room


def test_what_a_full_disk_refuses_holds_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    mkstemp = downloads.mkstemp

    def note(**options: Path) -> tuple[int, str]:
        descriptor, name = mkstemp(**options)
        opened.append(descriptor)
        return descriptor, name

    monkeypatch.setattr(downloads, "mkstemp", note)
    monkeypatch.setattr(room, "measure_room", lambda folder: (0, 1))
    with pytest.raises(StoreFullError):
        spool([b"x"], tmp_path)
    (descriptor,) = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert list(tmp_path.iterdir()) == []
