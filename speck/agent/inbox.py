"""States that arrive from other sites: collected piece by piece, then published atomically.

`carried/.arriving/<transfer id>` holds the bytes received so far; it survives the agent, so that an
interrupted transfer can continue. A complete one is unpacked beside it, synced, and renamed to
`carried/<job>/<transfer id>`, which therefore exists only when it is complete.
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
    """A piece does not follow the `received` bytes."""

    def __init__(self, received: int):
        super().__init__(f"cannot take this piece: {received} bytes were received so far")
        self.received = received


@dataclass(slots=True)
class Arrival:
    """One incoming transfer. Senders authenticate with `secret`."""

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
        """Whether all bytes were received; `Inbox.finish` verifies them."""
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
        """Get ready to receive pieces; returns the folder itself when the state is complete
        already. `total` is the size in bytes, if the sender announced it."""
        if not is_name(transfer) or not is_name(job_name):
            raise PermanentError(f"cannot receive {transfer!r} of {job_name!r}: invalid names")
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
        """The arrival of this id, if `secret` is right."""
        with self._lock:
            arrival = self._arrivals.get(transfer)
        if arrival is None or not secrets.compare_digest(
            arrival.secret.encode(), secret.encode("utf-8", "replace")
        ):
            return None
        return arrival

    def append(self, arrival: Arrival, offset: int, total: int, piece: bytes) -> int:
        """Append a piece and return the number of bytes received.

        Raises GapError, and TransientError when the disk has no space for the whole state.
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
        """Verify and unpack a complete arrival. Raises CorruptError; it then starts over."""
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
        """Accept no further pieces; the received bytes are kept for another attempt."""
        with self._lock:
            if self._arrivals.get(arrival.id) is arrival:
                del self._arrivals[arrival.id]

    def clear_old(self) -> None:
        """Delete incomplete transfers without progress for a day."""
        if not self._arriving.is_dir():
            return
        for path in self._arriving.iterdir():
            if time.time() - path.stat().st_mtime > _KEPT_S:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _refuse_too_large(self, total: int, received: int) -> None:
        free = self._folder.free_bytes()
        needed = 2 * total - received + _SPARE_BYTES
        if free is not None and free < needed:
            raise TransientError(
                f"cannot take a state of {total} bytes: {free} bytes are free at"
                f" {self._folder.root}, {needed} are needed; free some space there"
            )
