"""Writes files completely or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from speck.errors import PermanentError


class WholeFiles:
    """Files that appear together, under their names, once all of them are written (`publish`).

    At the end of the context nothing is left of those that were not published, nor of folders that
    were made for them.
    """

    def __init__(self) -> None:
        self._written: list[tuple[str, Path]] = []
        self._made: list[Path] = []

    def __enter__(self) -> WholeFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for name, _file in self._written:
            Path(name).unlink(missing_ok=True)
        for folder in reversed(self._made):
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    def add(
        self,
        file: Path,
        pieces: Iterable[bytes],
        size: int | None = None,
        advance: Callable[[int], None] = lambda written: None,
        *,
        make_folders: bool = False,
    ) -> int:
        """Write a file of `size` bytes (None: not known), readable by its owner only; returns how
        many there are. A pipe or a character device (/dev/stdout) takes them at once. Raises
        PermanentError, without writing anything if there is no room, or if something else is there
        that is no file."""
        with _reporting(file):
            if make_folders:
                self._make_folder(file.parent)
            if _is_stream(file):
                with file.open("wb", buffering=0) as out:
                    return _write(out, pieces, advance)
            target = Path(os.path.realpath(file)) if file.is_symlink() else file  # it stays a link
            _refuse_without_room(target, size)
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            self._written.append((name, target))
            with os.fdopen(descriptor, "wb") as out:
                written = _write(out, pieces, advance)
                out.flush()
                os.fsync(out.fileno())
                return written

    def publish(self) -> None:
        """Let all files appear. Raises PermanentError."""
        for name, file in self._written:
            with _reporting(file):
                os.replace(name, file)
        self._written.clear()
        self._made.clear()

    def _make_folder(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self._made.append(each)


def write_whole(
    file: Path,
    pieces: Iterable[bytes],
    size: int | None = None,
    advance: Callable[[int], None] = lambda written: None,
) -> int:
    """Write one file, as `WholeFiles.add` does."""
    with WholeFiles() as files:
        written = files.add(file, pieces, size, advance)
        files.publish()
    return written


def _write(out: IO[bytes], pieces: Iterable[bytes], advance: Callable[[int], None]) -> int:
    written = 0
    for piece in pieces:
        rest = memoryview(piece)
        while rest:  # a pipe may take less than it is given
            rest = rest[out.write(rest) :]
        written += len(piece)
        advance(len(piece))
    return written


def _is_stream(file: Path) -> bool:
    """Whether what is written goes on from there; such a thing must not be replaced by a file.
    Raises PermanentError for what can be neither written to nor replaced."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return True
    if not stat.S_ISREG(mode):
        kind = {stat.S_IFDIR: "a folder", stat.S_IFBLK: "a disk", stat.S_IFSOCK: "a socket"}
        there = kind.get(stat.S_IFMT(mode), "no file")
        raise PermanentError(f"cannot write {file}: it is {there}; name a file")
    return False


@contextmanager
def _reporting(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PermanentError(f"cannot write {file}: {error.strerror or error}") from error


def _refuse_without_room(file: Path, size: int | None) -> None:
    disk = shutil.disk_usage(file.parent)
    # a file system may tell no size: then only a write shows whether there is room
    if size is not None and disk.total and size > disk.free:
        raise PermanentError(
            f"cannot write {file}: it has {size} bytes, and {disk.free} are free on its disk; free"
            " space there, or name another place; nothing was written"
        )
