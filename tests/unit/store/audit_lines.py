"""Lines of an audit log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from speck.clock import SystemClock
from speck.store import audit
from speck.store.audit import Audit, Entry

CHANGED = Entry("POST", "/compositions/a", 202, token="ana", address="10.0.0.1")


def record(folder: Path, count: int, *, file_bytes: int = audit.FILE_BYTES) -> None:
    log = Audit(folder, SystemClock(), file_bytes)
    for _ in range(count):
        log.record(CHANGED)
    log.close()


class Usage(NamedTuple):
    total: int
    used: int
    free: int
