"""The audit log: who asked for what, from where, and how it ended.

An append-only log of JSON lines in files beside the store. Each line holds the SHA-256 of the line
before it, also from one file to the next, so that a line that was changed, removed or inserted
shows (`speck audit verify`). What the chain cannot show is that its newest lines were cut off:
note the last hash elsewhere, and `verify` says whether it is still there.

A line is given to the system before its request is answered, and so outlives the process; it is
synced within `SYNC_S`, and so a power failure loses the lines of that time at most.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speck.clock import Clock, rfc3339
from speck.errors import InvalidError
from speck.model.values import JsonObject

FILE_BYTES = 16 << 20
"""A file that is larger is followed by another."""
FILES = 64
"""How many files are kept; the oldest is removed then."""
SYNC_S = 1.0
RESERVE_BYTES = 8 << 20
"""Room on the disk that is left to changes under way: below it lines are only counted."""
WINDOW_S = 60.0
REFUSALS = 60
"""Refusals of one token that are recorded one by one within `WINDOW_S`; more are counted."""
UNAUTHORIZED = 5
"""The same for requests of one address without a valid token."""
_SOURCES = 1000
_SPOILT = (ValueError, KeyError, TypeError, RecursionError)
"""What a line that somebody has spoilt raises when it is read."""
_LONGEST = 500
FIRST = "0" * 64
"""What the first line of all names as the hash of the line before it."""

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


@dataclass(slots=True)
class _Window:
    began: float
    recorded: int = 0
    counted: int = 0


class Audit:
    """Appends to the log in `folder`. One process does, that which holds the store."""

    def __init__(self, folder: Path, clock: Clock, file_bytes: int = FILE_BYTES):
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

    def record(self, entry: Entry) -> None:
        """Append a line. Never raises for a disk that does not take it: the line is then counted,
        and the next one that can be written holds `missing`, the number of lines not written."""
        with self._lock:
            if self._closed:
                return
            self._report_floods()
            if not entry.refused or self._admit(entry):
                self._append(_fields(entry))

    def close(self) -> None:
        """Record what was only counted so far, and sync."""
        with self._lock:
            self._report_floods(all_of_them=True)
            self._closed = True
            if self._syncer is not None:
                self._syncer.cancel()
            self._close_file()

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

    def _append(self, fields: JsonObject) -> None:
        try:
            if shutil.disk_usage(self._folder.parent).free < RESERVE_BYTES:
                raise OSError("too little room on the disk")
            if self._descriptor is None:
                self._open()
            self._write(fields)
        except (OSError, ValueError) as error:
            if not self._missing:
                LOG.error("cannot write the audit log in %s: %s", self._folder, error)
            self._missing += 1
            self._close_file()

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
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        written = os.write(self._descriptor, line)
        if written < len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError("the disk is full")
        self._size += written
        self._number += 1
        self._previous = _hash(line)
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
        self._file_number = _number_of(files[-1]) if files else 1
        path = _path_of(self._folder, self._file_number)
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
            self._number = _read_last_number(lines)
            self._previous = _hash(lines[-1]) if lines else FIRST
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._size = descriptor, whole

    def _begin_file(self) -> None:
        """Close the file and begin the next; its first line names the last hash of this one."""
        self._close_file()
        path = _path_of(self._folder, self._file_number + 1)
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
        if descriptor is not None:  # outside the lock: a slow disk holds up no request
            with suppress(OSError):
                os.fsync(descriptor)
            os.close(descriptor)


# -- reading ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `verify` found: how many lines, from which number on, the last hash, and faults."""

    lines: int
    first: int
    last_hash: str
    faults: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return {
            "ok": not self.faults,
            "lines": self.lines,
            "first": self.first,
            "last_hash": self.last_hash,
            "faults": list(self.faults),
        }


def list_files(folder: Path) -> list[Path]:
    """The files of a log, oldest first."""
    return sorted(folder.glob("[0-9]" * 8 + ".jsonl"))


def read_entries(folder: Path, after: int = 0) -> Iterator[JsonObject]:
    """The lines with a number above `after`, oldest first; lines that cannot be read are left
    out. What is appended meanwhile may be missing."""
    files = list_files(folder)
    while len(files) > 1 and _first_number(files[1]) <= after + 1:
        del files[0]
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                with suppress(*_SPOILT):
                    entry = json.loads(line)
                    if entry["n"] > after:
                        yield entry


def read_newest(folder: Path, count: int) -> list[JsonObject]:
    """The newest `count` lines, oldest first."""
    newest: list[JsonObject] = []
    for file in reversed(list_files(folder)):
        lines = file.read_bytes().splitlines()
        while lines and len(newest) < count:
            with suppress(ValueError, RecursionError):
                newest.append(json.loads(lines.pop()))
        if len(newest) >= count:
            break
    return newest[::-1]


def verify(folder: Path, known_hash: str | None = None) -> Verdict:
    """Check the chain of hashes; `known_hash` must be the hash of one of its lines.

    Faults name the file and the line. Raises InvalidError when there is no log.
    """
    files = list_files(folder)
    if not files:
        raise InvalidError(f"cannot verify the audit log: there is none in {folder}")
    faults: list[str] = []
    previous, number, count, first, known = None, 0, 0, 0, known_hash is None
    for file in files:
        for index, line in enumerate(file.read_bytes().splitlines(keepends=True), 1):
            place = f"{file.name}, line {index}"
            fault = _find_fault(line, previous, number)
            if fault is not None:
                faults.append(f"{place}: {fault}")
            with suppress(*_SPOILT):
                number = _read_number(line)
            first = first or number
            previous = _hash(line)
            known = known or previous == known_hash
            count += 1
    if not known:
        faults.append(f"no line has the hash {known_hash}: lines were cut off or changed")
    if count and (missing := _find_missing_beginning(files)) is not None:
        faults.append(missing)
    return Verdict(count, first, previous or FIRST, tuple(faults))


def _find_fault(line: bytes, previous: str | None, number: int) -> str | None:
    try:
        record = json.loads(line)
        named, own = record["previous"], record["n"]
    except _SPOILT:
        return "is no line of an audit log"
    if previous is not None and named != previous:
        return "does not follow the line before it: that was changed, removed or inserted"
    if previous is not None and own != number + 1:
        return f"has number {own} after {number}"
    return None


def _find_missing_beginning(files: list[Path]) -> str | None:
    """A fault when lines are missing before the first, though no rotation has removed them."""
    oldest = files[0]
    if _number_of(oldest) > 1:
        if len(files) >= FILES:
            return None
        return f"{oldest.name}: the files before it are missing, though {FILES} are kept"
    line = _read_first_line(oldest)
    with suppress(*_SPOILT):
        if _read_number(line) == 1 and json.loads(line)["previous"] == FIRST:
            return None
    return f"{oldest.name}, line 1: does not begin the chain"


def _fields(entry: Entry) -> JsonObject:
    return {
        "token": entry.token,
        "address": entry.address,
        "verb": entry.verb,
        "object": entry.object[:_LONGEST],
        "outcome": entry.outcome,
        **(entry.detail or {}),
    }


def _path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.jsonl"


def _number_of(file: Path) -> int:
    return int(file.stem)


def _read_first_line(file: Path) -> bytes:
    with file.open("rb") as lines:
        return lines.readline()


def _first_number(file: Path) -> int:
    try:
        return _read_number(_read_first_line(file))
    except _SPOILT:
        return 1 << 62


def _read_number(line: bytes) -> int:
    return int(json.loads(line)["n"])


def _read_last_number(lines: list[bytes]) -> int:
    """The number of the last line. One that somebody has spoilt is counted: it is a fault that
    `verify` finds, and no reason to record nothing more."""
    for spoilt, line in enumerate(reversed(lines)):
        with suppress(*_SPOILT):
            return _read_number(line) + spoilt
    return len(lines)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
