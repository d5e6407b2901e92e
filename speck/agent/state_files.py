"""The files of a state, to be sent: what is below its folder, and nothing else.

The folder belongs to a job, which may swap a link in at any instant, between a look and the open
that follows it. So the folder is opened once, and everything in it relative to its descriptor, a
name at a time and never through a link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Self

from speck.errors import PermanentError

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait for its writer


class StateFiles:
    """The regular files in a folder, which is held open."""

    def __init__(self, folder: Path) -> None:
        """`folder` is a path without links. Raises PermanentError if it is no folder, or something
        in it is neither a folder nor a regular file."""
        self.folder = folder
        try:
            self._descriptor = _open_folder(folder)
        except OSError as error:
            raise self._fail(folder, error) from error
        try:
            self.names = self._list()
            """(name within the folder, bytes) in order."""
        except BaseException:
            self.close()
            raise

    def _list(self) -> list[tuple[str, int]]:
        files = []
        try:
            walk = os.fwalk(".", onerror=_raise, follow_symlinks=False, dir_fd=self._descriptor)
            for inner, folders, names, descriptor in walk:
                for name in (*folders, *names):
                    entry = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    path = Path(inner, name)
                    if stat.S_ISREG(entry.st_mode):
                        files.append((path.as_posix(), entry.st_size))
                    elif not stat.S_ISDIR(entry.st_mode):
                        raise self._refuse(path.as_posix())
        except OSError as error:
            raise self._fail(self.folder, error) from error
        return sorted(files)

    def open(self, name: str) -> BinaryIO:
        """One of its files, as it is now. Raises PermanentError."""
        *folders, last = name.split("/")
        try:
            inner = _descend(os.dup(self._descriptor), folders)
            try:
                descriptor = os.open(last, _FILE, dir_fd=inner)
            finally:
                os.close(inner)
        except OSError as error:
            raise self._fail(self.folder / name, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._refuse(name)
        return os.fdopen(descriptor, "rb")

    def _refuse(self, name: str) -> PermanentError:
        return PermanentError(
            f"cannot send {self.folder}: {self.folder / name} is not a regular file"
        )

    @staticmethod
    def _fail(path: Path, error: OSError) -> PermanentError:
        return PermanentError(f"cannot send {path}: {error.strerror}")

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_folder(path: Path) -> int:
    top, *names = path.parts
    inner = _descend(os.open(top, _FOLDER), names)
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=inner)
    finally:
        os.close(inner)


def _descend(descriptor: int, names: list[str]) -> int:
    """The descriptor of a folder further down; the given one is closed."""
    for name in names:
        try:
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _raise(error: OSError) -> None:
    raise error
