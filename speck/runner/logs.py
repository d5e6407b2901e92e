"""Logs of programs: their output, in a file that outlives the runner."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MOST = 2 << 20
"""Bytes of a log; twice as many are kept."""
_TAIL = 4096


def rotate(log: Path) -> None:
    """Keep the end of a log that has grown too long as `.1`, and go on in the same file: the
    program has it open, and appends to it. What it writes at this very moment may be lost, and so
    is all of it if the disk takes no copy."""
    with suppress(OSError):
        if log.stat().st_size > MOST:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(log, flags), "r+b") as stream:
                try:
                    stream.seek(-MOST, os.SEEK_END)
                    _keep(stream, log)
                finally:
                    os.ftruncate(stream.fileno(), 0)


def _keep(end: BinaryIO, log: Path) -> None:
    former = log.with_name(f"{log.name}.1")
    former.unlink(missing_ok=True)
    descriptor = os.open(former, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    with os.fdopen(descriptor, "wb") as out:
        out.write(end.read(MOST))


def drop(log: Path) -> bool:
    """Delete the former part of a log, which makes room on a full disk; whether there was one."""
    with suppress(OSError):
        log.with_name(f"{log.name}.1").unlink()
        return True
    return False


def read_tail(log: Path, since: int = 0) -> str:
    """The last lines of a log, of what was written after `since` bytes."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - _TAIL, since if since <= size else 0))
            return stream.read(_TAIL).decode(errors="replace").strip()
    except OSError:
        return ""
