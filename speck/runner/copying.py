"""Copies the state that an incarnation begins from, so that one that fails leaves its base as it
was.

Files that nobody may write to are shared (hard links): a program makes a file that will not change
read-only. Databases of SQLite are copied by SQLite, with what their journals hold; the rest byte by
byte.

For a program with a user of its own nothing is shared, and databases are copied byte by byte with
their journals, of which the program makes one again when it opens them: SQLite would follow what
is written in a journal, with the rights of the runner.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

from speck.errors import PermanentError
from speck.runner.files import DEEPEST, open_folder, open_foreign, sync_folder

_SQLITE = b"SQLite format 3\0"
_INDEX = "-shm"
"""Of a journal: made anew from it."""
_JOURNALS = ("-wal", "-journal", _INDEX)
_WRITABLE = 0o222
_RIGHTS = 0o777
_PIECE = 1 << 20
_BUSY_S = 30.0


def copy_state(base: Path, target: Path, *, share: bool = True) -> None:
    """Copy a state into a new folder, durably; without `share` all is copied, for a program
    with a user of its own. Raises PermanentError for what is neither a file nor a folder,
    and OSError."""
    with open_folder(base) as folder:
        _copy_folder(folder, base, target, share)


def _copy_folder(folder: int, source: Path, target: Path, share: bool, depth: int = 0) -> None:
    """Copy an open folder; `source` is its path. What it holds may change meanwhile."""
    if depth > DEEPEST:
        raise PermanentError(f"cannot copy {source}: folders are nested more than {DEEPEST} deep")
    target.mkdir()
    names = os.listdir(folder)
    databases = {name for name in names if _is_database(folder, name)}
    for name in names:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            with open_folder(name, folder) as inner:
                _copy_folder(inner, source / name, target / name, share, depth + 1)
        elif not _is_left_out(name, databases, share):
            _copy_file(folder, source / name, target / name, share, name in databases)
    sync_folder(target)


def _is_left_out(name: str, databases: set[str], share: bool) -> bool:
    journal = next((each for each in _JOURNALS if name.endswith(each)), "")
    if not journal or name.removesuffix(journal) not in databases:
        return False
    return share or journal == _INDEX


def _copy_file(folder: int, source: Path, copy: Path, share: bool, is_database: bool) -> None:
    stream = open_foreign(source.name, folder)
    if stream is None:  # a link might lead to what the program may not read
        raise PermanentError(f"cannot copy {source}: it is neither a file nor a folder")
    with stream:
        mode = os.fstat(stream.fileno()).st_mode
        if share and not mode & _WRITABLE and _link(source, copy):
            return
        if share and is_database:
            _copy_database(source, copy)
        else:
            with copy.open("xb") as out:
                shutil.copyfileobj(stream, out, _PIECE)
    with copy.open("rb") as done:
        os.fsync(done.fileno())
    copy.chmod(mode & _RIGHTS)


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


def _is_database(folder: int, name: str) -> bool:
    stream = open_foreign(name, folder)
    if stream is None:
        return False
    with stream:
        return stream.read(len(_SQLITE)) == _SQLITE
