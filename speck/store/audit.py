"""The audit log: who asked for what, from where, and how it ended.

An append-only log of JSON lines in files beside the store; `speck.store.audit_log` says what a
line holds, reads and verifies them.

A line is given to the system before its request is answered, and so outlives the process; it is
synced within `SYNC_S`, and so a power failure loses the lines of that time at most. The store then
learns of it (`Seal`). What a process that was killed had begun, and has no line, is recorded at the
next start (`speck.store.audit_intents`).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from speck.clock import Clock, rfc3339
from speck.errors import SpeckError
from speck.model.values import JsonObject
from speck.store.audit_intents import Intents
from speck.store.audit_log import (
    FILES,
    FIRST,
    SPOILT,
    Seal,
    Verdict,
    hash_line,
    list_files,
    number_of,
    path_of,
    read_last_number,
    read_newest,
    verify,
)

FILE_BYTES = 16 << 20
"""A file that is larger is followed by another."""
SYNC_S = 1.0
RESERVE_BYTES = 8 << 20
"""Room on the disk that is left to changes under way: below it lines are only counted."""
WINDOW_S = 60.0
REFUSALS = 60
"""Refusals of one token that are recorded one by one within `WINDOW_S`; more are counted."""
UNAUTHORIZED = 5
"""The same for requests of one address without a valid token."""
_SOURCES = 1000
_LONGEST = 500
_RECENT = 1000
"""Lines among which that of an act is looked for that was under way at the end of a process."""

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What happened: a `verb` (an HTTP method, or a command) on an `object` (a path), asked for by
    a token (None: without one) from an address, with an `outcome` (an HTTP status, or a word).

    `detail` holds further fields of the line, like the id of a change.
    """

    verb: str
    object: str
    outcome: int | str
    token: str | None = None
    address: str | None = None
    detail: JsonObject | None = None

    @property
    def refused(self) -> bool:
        return isinstance(self.outcome, int) and 400 <= self.outcome < 500


class SealKeeper(Protocol):
    """Keeps the seal of the log where whoever can write the log's files cannot: in the store."""

    def load(self) -> Seal | None: ...

    def save(self, seal: Seal) -> None: ...


@dataclass(slots=True)
class _Window:
    began: float
    recorded: int = 0
    counted: int = 0


class Audit:
    """Appends to the log in `folder`. One process does, that which holds the store."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        file_bytes: int = FILE_BYTES,
        keeper: SealKeeper | None = None,
    ):
        self._keeper = keeper
        self._seal: Seal | None = None
        self._intents = Intents(folder / "under-way")
        self._folder = folder
        self._clock = clock
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0
        self._file_number = 0
        self._number = 0
        self._previous = FIRST
        self._missing = 0
        self._windows: OrderedDict[tuple[str, str], _Window] = OrderedDict()
        self._syncer: threading.Timer | None = None
        self._closed = False

    def begin(self, entry: Entry) -> int | None:
        """Note that what `entry` says is about to happen; `record` is to be given what this
        returns, together with the outcome."""
        with self._lock:
            with suppress(OSError, ValueError):
                if self._descriptor is None and not self._closed:
                    self._open()
            number = self._number
        return self._intents.add(
            {"n": number, "began": rfc3339(self._clock.now()), **_fields(entry)}
        )

    def name(self, intent: int | None, about: str) -> None:
        """Say what a noted act is about, once that is known."""
        if intent is not None:
            self._intents.rename(intent, about)

    def record(self, entry: Entry, intent: int | None = None) -> bool:
        """Append a line. Never raises for a disk that does not take it, but returns False: the line
        is then counted, and the next one that can be written holds `missing`, the number of lines
        not written."""
        with self._lock:
            if self._closed:
                return False
            self._report_floods()
            is_noted = not entry.refused or self._admit(entry)
            is_done = self._append(_fields(entry)) if is_noted else True
        if intent is not None and is_done:
            self._intents.remove(intent)
        return is_done

    def verify(self, known_hash: str | None = None) -> Verdict:
        """See `speck.store.audit_log.verify`; lines may be added meanwhile. Raises InvalidError
        when there is no log."""
        seal = self._keeper.load() if self._keeper is not None else None
        return verify(self._folder, known_hash, seal)

    def report_unfinished(self) -> None:
        """Record what a process that was killed had begun: it may have happened or not. What no
        disk takes a line of stays noted for the next start."""
        left = self._intents.read_left()
        lines = read_newest(self._folder, _RECENT) if left else []
        unwritten = []
        for fields in left:
            with suppress(*SPOILT):  # of the slot: what it noted cannot be read any more
                if any(_is_line_of(line, fields) for line in lines):
                    continue
                if not self.record(_unknown(fields)):
                    unwritten.append(fields)
        self._intents.keep(unwritten)

    def close(self) -> None:
        """Record what was only counted so far, and sync."""
        with self._lock:
            self._report_floods(all_of_them=True)
            self._closed = True
            if self._syncer is not None:
                self._syncer.cancel()
            self._close_file()
            seal = self._newest_seal()
        self._save(seal)
        self._intents.close()

    # -- floods ---------------------------------------------------------------------------

    def _admit(self, entry: Entry) -> bool:
        """Whether a refusal is recorded by itself, and not only counted."""
        key = ("token", entry.token) if entry.token else ("address", entry.address or "")
        if key not in self._windows and len(self._windows) >= _SOURCES:
            key = ("address", "others")
        now = self._clock.monotonic()
        window = self._windows.setdefault(key, _Window(now))
        if window.recorded < (REFUSALS if entry.token else UNAUTHORIZED):
            window.recorded += 1
            return True
        window.counted += 1
        return False

    def _report_floods(self, *, all_of_them: bool = False) -> None:
        """End the windows that are over, with one line for each that counted refusals."""
        now = self._clock.monotonic()
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if not all_of_them and now - window.began < WINDOW_S:
                return  # they are in order of their beginning
            del self._windows[key]
            if window.counted:
                kind, name = key
                entry = Entry("*", "*", "refused", detail={"count": window.counted})
                self._append({**_fields(entry), kind: name})

    # -- writing --------------------------------------------------------------------------

    def _append(self, fields: JsonObject) -> bool:
        """Whether it could be written."""
        try:
            disk = shutil.disk_usage(self._folder.parent)
            if disk.total and disk.free < RESERVE_BYTES:  # some file systems tell no size
                raise OSError("too little room on the disk")
            if self._descriptor is None:
                self._open()
            self._write(fields)
        except (OSError, ValueError) as error:
            if not self._missing:
                LOG.error("cannot write the audit log in %s: %s", self._folder, error)
            self._missing += 1
            self._close_file()
            return False
        return True

    def _write(self, fields: JsonObject) -> None:
        if self._size >= self._file_bytes:
            self._begin_file()
        assert self._descriptor is not None
        record = {
            "n": self._number + 1,
            "at": rfc3339(self._clock.now()),
            **fields,
            **({"missing": self._missing} if self._missing else {}),
            "previous": self._previous,
        }
        text = json.dumps(record, separators=(",", ":")).encode()
        line = (text if self._seal is None else self._seal.add_code(text)) + b"\n"
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError("the disk is full")
        self._size += written
        self._number += 1
        self._previous = hash_line(line)
        self._missing = 0
        if self._syncer is None:
            self._syncer = threading.Timer(SYNC_S, self._sync)
            self._syncer.daemon = True
            self._syncer.start()

    def _open(self) -> None:
        """Open the newest file to append to it. Half a line, left by a power failure, is removed:
        the chain goes on from the last whole one, and says so."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        files = list_files(self._folder)
        self._file_number = number_of(files[-1]) if files else 1
        path = path_of(self._folder, self._file_number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < size:
                os.ftruncate(descriptor, whole)
                self._missing += 1
            lines = content[:whole].splitlines(keepends=True)
            if not lines and len(files) > 1:
                lines = files[-2].read_bytes().splitlines(keepends=True)[-1:]
            self._number = read_last_number(lines)
            self._previous = hash_line(lines[-1]) if lines else FIRST
            self._go_on_from_seal()
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._size = descriptor, whole

    def _go_on_from_seal(self) -> None:
        """Go on behind the newest line that the store knows, also if it is not there any more or
        has been changed: then the chain has a gap that stays."""
        if self._keeper is None:
            return
        self._seal = self._seal or self._keeper.load()
        if self._seal is None:
            self._seal = Seal(secrets.token_hex(32), self._number + 1, 0, FIRST)
            self._save(self._seal)
        if self._seal.n >= self._number and self._seal.n:
            if self._seal.hash != self._previous:
                LOG.error("the newest lines of the audit log in %s are missing", self._folder)
            self._number, self._previous = self._seal.n, self._seal.hash

    def _newest_seal(self) -> Seal | None:
        """The seal of the log as it is."""
        if self._seal is not None:
            self._seal = replace(self._seal, n=self._number, hash=self._previous)
        return self._seal

    def _save(self, seal: Seal | None) -> None:
        if self._keeper is not None and seal is not None:
            with suppress(SpeckError):  # the next line saves a newer one
                self._keeper.save(seal)

    def _begin_file(self) -> None:
        """Close the file and begin the next; its first line names the last hash of this one."""
        self._close_file()
        path = path_of(self._folder, self._file_number + 1)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._file_number += 1
        self._size = 0
        for old in list_files(self._folder)[:-FILES]:
            old.unlink(missing_ok=True)

    def _close_file(self) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):
            os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None

    def _sync(self) -> None:
        with self._lock:
            self._syncer = None
            descriptor = None if self._descriptor is None else os.dup(self._descriptor)
            seal = self._newest_seal()
        if descriptor is not None:  # outside the lock: a slow disk holds up no request
            with suppress(OSError):
                os.fsync(descriptor)
                self._save(seal)
            os.close(descriptor)


def _fields(entry: Entry) -> JsonObject:
    return {
        "token": entry.token,
        "address": entry.address,
        "verb": entry.verb,
        "object": entry.object[:_LONGEST],
        "outcome": entry.outcome,
        **(entry.detail or {}),
    }


def _unknown(intent: JsonObject) -> Entry:
    """The line of an act that was noted, and of which no more is known."""
    detail: JsonObject = {key: intent[key] for key in ("request", "began") if key in intent}
    who = {"token": intent["token"], "address": intent["address"]}
    return Entry(intent["verb"], intent["object"], "unknown", **who, detail=detail)


def _is_line_of(line: JsonObject, intent: JsonObject) -> bool:
    """Whether a line is that of an act that was noted before. One that somebody has spoilt is that
    of none: an act is rather reported twice than not at all."""
    same = all(line.get(key) == intent.get(key) for key in ("token", "verb", "request"))
    with suppress(*SPOILT):
        return bool(same and line["n"] > intent["n"])
    return False
