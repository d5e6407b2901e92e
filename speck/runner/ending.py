"""Ends all programs below a state folder whose runner has ended: they would outlive it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from speck.runner.claims import FOLDER
from speck.runner.lease import is_held
from speck.runner.processes import find_holders, list_sessions, send

_PAUSE_S = 0.05
_LONGEST_S = 10.0


def end_programs(state_folder: Path) -> int:
    """Kill them and return how many there were. Their states are as after a crash."""
    root = state_folder / FOLDER
    leases = [folder / "lease" for folder in root.iterdir()] if root.is_dir() else []
    held = [lease for lease in leases if is_held(lease)]
    until = time.monotonic() + _LONGEST_S
    left = held
    while left and time.monotonic() < until:
        sessions = list_sessions()
        for lease in left:
            for holder in find_holders(lease):
                send([holder, *sessions.get(holder.session, ())], signal.SIGKILL)
        time.sleep(_PAUSE_S)
        left = [lease for lease in left if is_held(lease)]
    return len(held)
