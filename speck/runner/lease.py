"""The lease of a program: a lock on a file that the program inherits, so that it ends with it.

Process ids are used again, and a file with one says nothing after a crash. A lock of `flock`
belongs to the open file: it is held as long as any process has the descriptor, whoever started it,
and a reboot ends it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def acquire_lease(file: Path) -> int | None:
    """A descriptor that holds the lease, for a program to inherit; None: it is held by another.
    Raises OSError."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_held(file: Path) -> bool:
    """Whether somebody holds the lease. Only one process may ask: it takes the lock for a
    moment."""
    try:
        descriptor = acquire_lease(file)
    except FileNotFoundError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
