"""Finds the file of a job and computes its SHA-256."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from speck.clock import Clock, SystemClock
from speck.errors import InvalidError, NotFoundError
from speck.model.values import cut

ARTIFACT = "artifact:"
_MTIME_RESOLUTION_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class JobFile:
    """The file of a `job_path` on this machine, and the SHA-256 (64 hex digits) of its content."""

    sha256: str
    file: Path


_Key = tuple[int, int, int, int]


class JobFileFinder:
    """Turns a `job_path` into a JobFile; usable from many threads.

    Files must be in one of `folders`. `artifact` returns the stored file of a SHA-256, or None.
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

    def __call__(self, job_path: str) -> JobFile:
        """Return the file at `job_path`.

        Raises NotFoundError if it does not exist, InvalidError if it may not be used.
        """
        if job_path.startswith(ARTIFACT):
            return self._find_artifact(job_path.removeprefix(ARTIFACT))
        try:
            file = self._find_file(job_path)
            return JobFile(self._hash(file), file)
        except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: a loop of links
            why = getattr(exc, "strerror", None) or cut(str(exc))
            raise InvalidError(f"cannot read the artifact {cut(job_path)}: {why}") from exc

    def _find_artifact(self, sha256: str) -> JobFile:
        file = self._artifact(sha256)
        if file is None:
            raise NotFoundError(
                f"cannot find the artifact {cut(sha256)}; send it with `speck artifacts push FILE`"
            )
        return JobFile(sha256, file)

    def _find_file(self, job_path: str) -> Path:
        """Return the real file, with links resolved; it must be in one of the folders."""
        roots = [folder.resolve() for folder in self._folders]
        path = Path(job_path)
        candidates = [path] if path.is_absolute() else [root / path for root in roots]
        real_paths = [
            real
            for real in (candidate.resolve() for candidate in candidates)
            if any(real.is_relative_to(root) for root in roots)
        ]
        for real in real_paths:
            if real.is_file():
                return real
        folders = ", ".join(map(str, self._folders)) or "none is configured"
        if not real_paths:
            raise InvalidError(
                f"cannot use the artifact {cut(job_path)}: it lies outside the folders of --jars"
                f" ({folders})"
            )
        raise NotFoundError(
            f"cannot find the artifact {cut(job_path)} in the folders of --jars ({folders})"
        )

    def _hash(self, file: Path) -> str:
        with self._lock:
            cached = self._hashes.get(file)
        with _open_regular(file) as stream:
            before = _key(stream)
            if cached is not None and cached[0] == before:
                return cached[1]
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            if _key(stream) != before:
                raise OSError("it changed while it was read; try again when it is complete")
        # A file that was written a moment ago may change again without a change of its mtime,
        # whose resolution is limited.
        age_ns = int(self._clock.now().timestamp() * 1e9) - before[1]
        if age_ns > _MTIME_RESOLUTION_NS:
            with self._lock:
                self._hashes[file] = (before, sha256)
        return sha256


def _open_regular(file: Path) -> BufferedReader:
    """Open a regular file; does not block on a pipe that has no writer."""
    number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError("it is no regular file")
    return os.fdopen(number, "rb")


def _key(stream: BufferedReader) -> _Key:
    status = os.fstat(stream.fileno())
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
