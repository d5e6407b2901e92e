"""States that arrive from other sites: gathered piece by piece, and complete or not there.

`carried/.arriving/<transfer id>` holds what has come so far; it survives the agent, so a
transfer goes on where it was cut. A complete one is unpacked beside it, synced, and renamed to
`carried/<job>/<transfer id>`: that name is there only when all of it is.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from speck.agent.folder import CARRIED, StateFolder
from speck.agent.framing import CorruptError, sync_folder, unpack
from speck.errors import PermanentError, TransientError
from speck.model.values import is_name

_ARRIVING = ".arriving"
_KEPT_S = 24 * 3600.0
_SPARE_BYTES = 16 << 20


class GapError(TransientError):
    """A piece does not follow what is there; `received` bytes are."""

    def __init__(self, received: int):
        super().__init__(f"cannot take this piece: {received} bytes have arrived so far")
        self.received = received


@dataclass(slots=True)
class Arrival:
    """One transfer on its way in. `secret` is shown by whoever may send to it."""

    id: str
    part: Path
    final: Path
    secret: str
    received: int = 0
    total: int | None = None
    has_room: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)

    @property
    def complete(self) -> bool:
        """Whether all its bytes have come; whether they are right shows when it is finished."""
        return self.total is not None and self.received == self.total


class Inbox:
    """All arrivals of a site."""

    def __init__(self, folder: StateFolder):
        self._folder = folder
        self._arriving = folder.root / CARRIED / _ARRIVING
        self._lock = threading.Lock()
        self._arrivals: dict[str, Arrival] = {}

    def begin(
        self, transfer: str, job_name: str, secret: str, total: int | None = None
    ) -> Arrival | Path:
        """Ready to take pieces; the folder itself when all of it is there already. `total` is
        known when the sender has told it before."""
        if not is_name(transfer) or not is_name(job_name):
            raise PermanentError(f"cannot receive {transfer!r} of {job_name!r}: no names")
        final = self._folder.root / CARRIED / job_name / transfer
        if final.is_dir():
            return final
        self._arriving.mkdir(parents=True, exist_ok=True)
        with self._lock:
            part = self._arriving / transfer
            arrival = Arrival(transfer, part, final, secret, total=total)
            if part.exists():
                arrival.received = part.stat().st_size
            before = self._arrivals.get(transfer)
            if before is not None:
                arrival.lock = before.lock  # a piece for the one before may be under way
            self._arrivals[transfer] = arrival
        return arrival

    def find(self, transfer: str, secret: str) -> Arrival | None:
        """The arrival that `secret` opens."""
        with self._lock:
            arrival = self._arrivals.get(transfer)
        if arrival is None or not secrets.compare_digest(
            arrival.secret.encode(), secret.encode("utf-8", "replace")
        ):
            return None
        return arrival

    def append(self, arrival: Arrival, offset: int, total: int, piece: bytes) -> int:
        """Add a piece; how many bytes are there now.

        Raises GapError, and TransientError when the disk has no room for the whole.
        """
        with arrival.lock:
            if self._arrivals.get(arrival.id) is not arrival:
                raise GapError(arrival.received)
            if offset != arrival.received or (arrival.total or total) != total:
                raise GapError(arrival.received)
            if offset + len(piece) > total:
                raise PermanentError("cannot take more bytes than were announced")
            if not arrival.has_room:
                self._refuse_too_large(total, arrival.received)
                arrival.has_room = True
            with arrival.part.open("ab") as file:
                file.write(piece)
            arrival.received += len(piece)
            arrival.total = total
        arrival.changed.set()
        return arrival.received

    def finish(self, arrival: Arrival) -> Path:
        """Check and unpack a complete arrival. Raises CorruptError; it then begins anew."""
        with arrival.lock:
            fresh = arrival.part.with_name(f"{arrival.id}.new")
            try:
                unpack(arrival.part, fresh)
            except CorruptError:
                arrival.part.unlink(missing_ok=True)
                arrival.received, arrival.total = 0, None
                raise
            arrival.final.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(self._arriving)
            os.rename(fresh, arrival.final)
            sync_folder(arrival.final.parent)
            sync_folder(arrival.final.parent.parent)
            arrival.part.unlink(missing_ok=True)
        self.end(arrival)
        return arrival.final

    def end(self, arrival: Arrival) -> None:
        """Take no further pieces; what has come is kept for another try."""
        with self._lock:
            if self._arrivals.get(arrival.id) is arrival:
                del self._arrivals[arrival.id]

    def clear_old(self) -> None:
        """Delete what nobody has gone on with for a day."""
        if not self._arriving.is_dir():
            return
        for path in self._arriving.iterdir():
            if time.time() - path.stat().st_mtime > _KEPT_S:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _refuse_too_large(self, total: int, received: int) -> None:
        free = self._folder.free_bytes() or 0
        needed = 2 * total - received + _SPARE_BYTES
        if free < needed:
            raise TransientError(
                f"cannot take a state of {total} bytes: {free} bytes are free at"
                f" {self._folder.root}, {needed} are needed; make room there"
            )
