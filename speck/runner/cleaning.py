"""Deletes what a program needs only while it runs, and frees its user."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from speck.runner import claims
from speck.runner.owners import list_users, take_back
from speck.runner.processes import find_of_user, send
from speck.runner.starting import CREDENTIALS


def clean_up(folder: Path, users: tuple[int, int] | None) -> bool:
    """Leave of a program that has ended what is kept, and return whether that is done; `users`:
    the first and the last one that programs have of their own. Once it is done, it has no effect.
    Raises OSError."""
    shutil.rmtree(folder / CREDENTIALS, ignore_errors=True)
    claims.drop_program(folder)
    first, last = users or (1, 0)
    for uid in list_users(folder):
        if first <= uid <= last and (left := find_of_user(uid)):
            send(left, signal.SIGKILL)  # what has left session and lease
            return False
    take_back(folder)
    return True
