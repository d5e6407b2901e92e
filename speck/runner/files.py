"""Files that survive a power failure, and files of programs, which nobody trusts."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGEST = 64 << 10
"""Bytes that are read of a file that a program has written."""


def write_json(file: Path, content: Any, *, durable: bool = True) -> None:
    """Replace a file at once."""
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("w") as out:
        json.dump(content, out)
        out.flush()
        if durable:
            os.fsync(out.fileno())
    fresh.rename(file)
    if durable:
        sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_own(file: Path) -> dict[str, Any] | None:
    """A JSON object that the runner has written; None if there is none."""
    with suppress(OSError, ValueError):
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else None
    return None


def read_foreign(file: Path) -> bytes | None:
    """The first `LARGEST` bytes of a regular file that a program may have written; None if there is
    none. Links are not followed: the program may not read where they lead."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with suppress(OSError):
            return stream.read(LARGEST)
    return None


def measure_folder(folder: Path, most_files: int = 20_000) -> int | None:
    """The bytes of all files in a folder that a program may have written; None if it has too many.
    Links are not followed."""
    total, count, folders = 0, 0, [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > most_files:
                    return None
                with suppress(OSError):  # deleted meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
