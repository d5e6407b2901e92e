"""Looks at the leases of all programs all the time and notes when a job had two of them.

A lease is a lock that a program inherits (docs/binders.md, "Process"); the kernel lists the locks
that are held, so that nothing is disturbed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from speck.runner.claims import FOLDER, read_claim

_EVERY_S = 0.1
_LOCKS = Path("/proc/locks")


def list_locked(text: str) -> set[int]:
    """The inodes of the files with a lock of flock, of the text of /proc/locks."""
    rows = (line.split() for line in text.splitlines())
    return {int(row[5].rpartition(":")[2]) for row in rows if len(row) > 5 and row[1] == "FLOCK"}


class ProgramMonitor:
    """Polls the state folders of sites ten times a second until it is closed."""

    def __init__(self, states: Iterable[Path]) -> None:
        self._folders = [state / FOLDER for state in states]
        self._names: dict[Path, str] = {}
        self._most: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def two_copies(self) -> list[str]:
        """The jobs that had two programs alive at one moment."""
        return sorted(name for name, most in dict(self._most).items() if most > 1)

    @property
    def seen(self) -> int:
        """How many jobs it has seen alive."""
        return len(self._most)

    def __enter__(self) -> ProgramMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            alive = Counter(self._list_alive())
            for name, count in alive.items():
                self._most[name] = max(self._most[name], count)

    def _list_alive(self) -> list[str]:
        leases = [lease for folder in self._folders for lease in folder.glob("*/lease")]
        locked = list_locked(_LOCKS.read_text())
        names = []
        for lease in leases:
            try:
                if lease.stat().st_ino in locked:
                    names.append(self._find_name(lease.parent))
            except OSError:
                continue  # it has just been deleted
        return [name for name in names if name]

    def _find_name(self, folder: Path) -> str:
        if folder not in self._names and (claim := read_claim(folder)) is not None:
            self._names[folder] = claim[0].name
        return self._names.get(folder, "")
