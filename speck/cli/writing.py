"""Writes files completely or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
        many there are. Raises PermanentError, without writing anything if there is no room."""
        with _reporting(file):
            if make_folders:
                self._make_folder(file.parent)
            _refuse_without_room(file, size)
            descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            self._written.append((name, file))
            with os.fdopen(descriptor, "wb") as out:
                for piece in pieces:
                    out.write(piece)
                    advance(len(piece))
                out.flush()
                os.fsync(out.fileno())
                return out.tell()

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
