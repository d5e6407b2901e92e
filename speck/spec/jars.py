"""Finding a job's jar, naming it by its content, and looking into it.

A jar is never unpacked: only its central directory is read.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader
from pathlib import Path

from speck.clock import Clock, SystemClock
from speck.errors import InvalidError, NotFoundError

ARTIFACT = "artifact:"
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar on this machine and the SHA-256 (64 hex digits) of its content."""

    sha256: str
    file: Path


_Key = tuple[int, int, int, int]


class JarFinder:
    """Turns a `job_path` into a Jar; usable from many threads.

    `folders` are where jars may lie. `artifact` gives the stored file of a SHA-256, or None.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        artifact: Callable[[str], Path | None],
        clock: Clock | None = None,
    ) -> None:
        self._folders = tuple(folders)
        self._artifact = artifact
        self._clock = clock or SystemClock()
        self._hashes: dict[Path, tuple[_Key, str]] = {}
        self._lock = threading.Lock()

    def __call__(self, job_path: str) -> Jar:
        """The jar at `job_path`.

        Raises NotFoundError when it is not there, InvalidError when it may not be used.
        """
        if job_path.startswith(ARTIFACT):
            return self._stored(job_path.removeprefix(ARTIFACT))
        try:
            file = self._allowed(job_path)
            return Jar(self._hash(file), file)
        except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: a loop of links
            raise InvalidError(f"cannot read the jar {job_path}: {exc}") from exc

    def _stored(self, sha256: str) -> Jar:
        file = self._artifact(sha256)
        if file is None:
            raise NotFoundError(
                f"cannot find the artifact {sha256}; upload it with PUT /artifacts/{sha256}"
            )
        return Jar(sha256, file)

    def _allowed(self, job_path: str) -> Path:
        """The real file, after following links, below one of the folders."""
        roots = [folder.resolve() for folder in self._folders]
        asked = Path(job_path)
        tried = [asked] if asked.is_absolute() else [root / asked for root in roots]
        below = [
            real
            for real in (path.resolve() for path in tried)
            if any(real.is_relative_to(root) for root in roots)
        ]
        for real in below:
            if real.is_file():
                return real
        folders = ", ".join(map(str, self._folders)) or "none is configured"
        if not below:
            raise InvalidError(
                f"cannot use the jar {job_path}: it lies outside the jar folders ({folders})"
            )
        raise NotFoundError(f"cannot find the jar {job_path} in the jar folders ({folders})")

    def _hash(self, file: Path) -> str:
        with self._lock:
            known = self._hashes.get(file)
        with _open_regular(file) as stream:
            before = _key(stream)
            if known is not None and known[0] == before:
                return known[1]
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            if _key(stream) != before:
                raise OSError("it changed while it was read; try again when it is complete")
        # A file written moments ago may be written again within one tick of its own clock.
        age_ns = int(self._clock.now().timestamp() * 1e9) - before[1]
        if age_ns > _SETTLED_NS:
            with self._lock:
                self._hashes[file] = (before, sha256)
        return sha256


def _open_regular(file: Path) -> BufferedReader:
    """Open without waiting for a writer, as a pipe would."""
    number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("it is no regular file")
    return os.fdopen(number, "rb")


def _key(stream: BufferedReader) -> _Key:
    found = os.fstat(stream.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def class_fault(jar: Jar, entry_class: str) -> str | None:
    """Why `entry_class` cannot be started from `jar`, or None when the class is in it."""
    try:
        classes = _classes(jar.sha256, jar.file)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as exc:
        return f"the file is no jar: {exc}"
    if entry_class in classes:
        return None
    near = _nearest(entry_class, classes)
    hint = f"; the nearest are {', '.join(near)}" if near else "; it holds no classes"
    return f"the jar holds no class {entry_class}{hint}"


@lru_cache(maxsize=64)
def _classes(sha256: str, file: Path) -> frozenset[str]:
    with zipfile.ZipFile(file) as archive:
        return frozenset(
            name.removesuffix(".class").replace("/", ".")
            for name in archive.namelist()
            if name.endswith(".class") and not name.startswith("META-INF/")
        )


def _nearest(wanted: str, classes: frozenset[str]) -> list[str]:
    """Up to 5 classes, the same simple name first, then by likeness of the full name."""
    candidates = sorted(name for name in classes if "$" not in name)
    simple = wanted.rpartition(".")[2].lower()
    same = [name for name in candidates if name.rpartition(".")[2].lower() == simple]
    others = (name for name in candidates if name not in same)
    near = difflib.get_close_matches(wanted, list(others)[:20_000], n=5, cutoff=0.0)
    return [*same, *near][:5]
