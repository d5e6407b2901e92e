"""Reading and verifying the audit log: an append-only chain of JSON lines in files.

Each line holds the SHA-256 of the line before it, also from one file to the next. A `Seal`, which
the store keeps, closes the chain at its end: a code of each line that only the store's key can
make, and which line was the newest that was synced.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speck.errors import InvalidError
from speck.model.values import JsonObject

FILES = 64
"""How many files are kept; the oldest is removed then."""
FIRST = "0" * 64
"""What the first line of all names as the hash of the line before it."""
_CODE = b',"code":"'
SPOILT = (ValueError, KeyError, TypeError, RecursionError)
"""What a line that somebody has spoilt raises when it is read."""


@dataclass(frozen=True, slots=True)
class Seal:
    """What the store knows of a log: the `key` of the codes of its lines from number `since` on,
    and number and hash of the newest line that was synced (0: none)."""

    key: str
    since: int
    n: int
    hash: str

    def code(self, body: bytes) -> str:
        """The code of a line, of which `body` is all before it."""
        return hmac.new(bytes.fromhex(self.key), body, hashlib.sha256).hexdigest()[:32]

    def add_code(self, line: bytes) -> bytes:
        """A line, a JSON object, with its code."""
        body = line.removesuffix(b"}")
        return body + _CODE + self.code(body).encode() + b'"}'

    def has_made(self, line: bytes) -> bool:
        """Whether the code of a line is right."""
        body, mark, rest = line.rstrip(b"\n").rpartition(_CODE)
        return bool(mark) and hmac.compare_digest(rest, self.code(body).encode() + b'"}')


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
                with suppress(*SPOILT):
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
                line = json.loads(lines.pop())
                if isinstance(line, dict):
                    newest.append(line)
        if len(newest) >= count:
            break
    return newest[::-1]


def verify(folder: Path, known_hash: str | None = None, seal: Seal | None = None) -> Verdict:
    """Check the chain of hashes; `known_hash` must be the hash of one of its lines. With the `seal`
    of the store also check who wrote the lines, and that the newest are there.

    Faults name the file and the line. Raises InvalidError when there is no log.
    """
    files = list_files(folder)
    if not files and (seal is None or not seal.n):
        raise InvalidError(f"cannot verify the audit log: there is none in {folder}")
    faults: list[str] = []
    previous, number, count, first, known = None, 0, 0, 0, known_hash is None
    newest: str | None = None
    for file in files:
        for index, line in enumerate(file.read_bytes().splitlines(keepends=True), 1):
            place = f"{file.name}, line {index}"
            fault = _find_fault(line, previous, number)
            if fault is not None:
                faults.append(f"{place}: {fault}")
            with suppress(*SPOILT):
                number = _read_number(line)
            first = first or number
            previous = hash_line(line)
            known = known or previous == known_hash
            count += 1
            if seal is not None and number >= seal.since and not seal.has_made(line):
                faults.append(f"{place}: was not written by this service, or was changed")
            if seal is not None and number == seal.n:
                newest = previous
    if not known:
        faults.append(f"no line has the hash {known_hash}: lines were cut off or changed")
    if seal is not None and seal.n and newest != seal.hash:
        lost = "was changed" if newest else f"is missing, and what followed {number}: cut off"
        faults.append(f"line {seal.n}, the newest that the store knows, {lost}")
    if count and (missing := _find_missing_beginning(files)) is not None:
        faults.append(missing)
    return Verdict(count, first, previous or FIRST, tuple(faults))


def _find_fault(line: bytes, previous: str | None, number: int) -> str | None:
    try:
        record = json.loads(line)
        named, own = record["previous"], record["n"]
    except SPOILT:
        return "is no line of an audit log"
    if previous is not None and named != previous:
        return "does not follow the line before it: that was changed, removed or inserted"
    if previous is not None and own != number + 1:
        return f"has number {own} after {number}"
    return None


def _find_missing_beginning(files: list[Path]) -> str | None:
    """A fault when lines are missing before the first, though no rotation has removed them."""
    oldest = files[0]
    if number_of(oldest) > 1:
        if len(files) >= FILES:
            return None
        return f"{oldest.name}: the files before it are missing, though {FILES} are kept"
    line = _read_first_line(oldest)
    with suppress(*SPOILT):
        if _read_number(line) == 1 and json.loads(line)["previous"] == FIRST:
            return None
    return f"{oldest.name}, line 1: does not begin the chain"


def path_of(folder: Path, number: int) -> Path:
    """A file of the log."""
    return folder / f"{number:08d}.jsonl"


def number_of(file: Path) -> int:
    """The number of a file of the log."""
    return int(file.stem)


def _read_first_line(file: Path) -> bytes:
    with file.open("rb") as lines:
        return lines.readline()


def _first_number(file: Path) -> int:
    try:
        return _read_number(_read_first_line(file))
    except SPOILT:
        return 1 << 62


def _read_number(line: bytes) -> int:
    return int(json.loads(line)["n"])


def read_last_number(lines: list[bytes]) -> int:
    """The number of the last line. One that somebody has spoilt is counted: it is a fault that
    `verify` finds, and no reason to record nothing more."""
    for spoilt, line in enumerate(reversed(lines)):
        with suppress(*SPOILT):
            return _read_number(line) + spoilt
    return len(lines)


def hash_line(line: bytes) -> str:
    """What the next line says of this one."""
    return hashlib.sha256(line).hexdigest()
