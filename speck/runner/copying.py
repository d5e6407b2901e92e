"""Copies the state that an incarnation begins from, so that one that fails leaves its base as it
was.

Files that nobody may write to are shared (hard links): a program makes a file that will not change
read-only. Databases of SQLite are copied by SQLite, with what their journals hold; the rest byte by
byte.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from speck.errors import PermanentError
from speck.runner.files import sync_folder

_SQLITE = b"SQLite format 3\0"
_JOURNALS = ("-wal", "-shm", "-journal")
_WRITABLE = 0o222
_BUSY_S = 30.0


def copy_state(base: Path, target: Path, *, share: bool = True) -> None:
    """Copy a state into a new folder, durably; without `share` all is copied, for a program
    with a user of its own. Raises PermanentError for what is no regular file,
    and OSError."""
    target.mkdir()
    for folder, inner, names in os.walk(base):
        source = Path(folder)
        copy = target / source.relative_to(base)
        for name in inner:
            _require(source / name, stat.S_ISDIR)
            (copy / name).mkdir()
        databases = {name for name in names if _is_database(source / name)}
        for name in names:
            database = next((name.removesuffix(j) for j in _JOURNALS if name.endswith(j)), "")
            if database not in databases:
                _copy_file(source / name, copy / name, share, is_database=name in databases)
        sync_folder(copy)


def _copy_file(source: Path, copy: Path, share: bool, *, is_database: bool) -> None:
    mode = _require(source, stat.S_ISREG)
    if share and not mode & _WRITABLE and _link(source, copy):
        return
    if is_database:
        _copy_database(source, copy)
    else:
        shutil.copyfile(source, copy, follow_symlinks=False)
    with copy.open("rb") as stream:
        os.fsync(stream.fileno())
    copy.chmod(stat.S_IMODE(mode))


def _link(source: Path, copy: Path) -> bool:
    try:
        os.link(source, copy, follow_symlinks=False)
    except OSError:  # another file system, or one without links
        return False
    return True


def _copy_database(source: Path, copy: Path) -> None:
    """With what its journal holds: the program may have been killed. Nothing else reads it."""
    try:
        with (
            closing(sqlite3.connect(source, timeout=_BUSY_S)) as old,
            closing(sqlite3.connect(copy, timeout=_BUSY_S)) as new,
        ):
            old.backup(new)
    except sqlite3.Error as error:
        raise PermanentError(f"cannot copy the database {source}: {error}") from error


def _is_database(file: Path) -> bool:
    if not stat.S_ISREG(file.lstat().st_mode):
        return False
    with file.open("rb") as stream:
        return stream.read(len(_SQLITE)) == _SQLITE


def _require(file: Path, is_right: object) -> int:
    """The mode of a file. Raises PermanentError unless it is of the right kind: a link might lead
    to what the program may not read."""
    mode = file.lstat().st_mode
    if not is_right(mode):  # type: ignore[operator]
        raise PermanentError(f"cannot copy {file}: it is neither a file nor a folder")
    return mode
