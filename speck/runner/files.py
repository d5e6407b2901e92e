"""Files that survive a power failure, and files of programs, which nobody trusts."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 64 << 10
"""Bytes that are read of a file that a program has written."""
DEEPEST = 100
"""Folders in folders that are looked into."""


@contextmanager
def open_folder(folder: Path | str, within: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, of one by that name in the open folder `within`. A link is no
    folder. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def walk_folder(folder: int, depth: int = 0) -> Iterator[tuple[int, str, os.stat_result]]:
    """All that is below an open folder, which a program may change meanwhile: the folder that each
    is in, open, its name there, and what it is. What a folder holds comes before the folder; links
    are not followed. Raises OSError, also for folders nested too deeply."""
    if depth > DEEPEST:
        raise OSError(errno.ENAMETOOLONG, f"folders are nested more than {DEEPEST} deep")
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            with open_folder(name, folder) as inner:
                yield from walk_folder(inner, depth + 1)
        yield folder, name, status


def replace_file(
    folder: int,
    name: str,
    content: bytes,
    *,
    mode: int | None = None,
    owner: tuple[int, int] = (-1, -1),
    durable: bool = True,
) -> None:
    """Replace a file in an open folder at once, with a new one of that mode, user and group (None,
    -1: the runner's). Others may write in the folder: whatever lies in the way goes, and no link is
    followed. Raises OSError."""
    fresh = f"{name}.new"
    _clear_way(folder, fresh)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, 0o666 if mode is None else 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        if mode is not None:
            os.fchmod(descriptor, mode)
        if owner != (-1, -1):
            os.fchown(descriptor, *owner)
        if durable:
            os.fsync(descriptor)
    try:
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        _clear_way(folder, name)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    if durable:
        os.fsync(folder)


def _clear_way(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)


def write_json(
    file: Path,
    content: Any,
    *,
    mode: int | None = None,
    owner: tuple[int, int] = (-1, -1),
    durable: bool = True,
) -> None:
    """Replace a file at once; see `replace_file`."""
    with open_folder(file.parent.resolve()) as folder:
        text = json.dumps(content).encode()
        replace_file(folder, file.name, text, mode=mode, owner=owner, durable=durable)


def delete_folder(folder: Path) -> None:
    """Delete a folder that a program may have written, however deeply nested; it is no error if
    there is none. Raises OSError."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except (RecursionError, OSError):
        subprocess.run(["rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)
    if os.path.lexists(folder):
        raise OSError(errno.ENOTEMPTY, f"cannot delete {folder}")


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_own(file: Path) -> dict[str, Any] | None:
    """A JSON object that the runner has written; None if there is none."""
    with suppress(OSError, ValueError):
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else None
    return None


def open_foreign(file: Path | str, within: int | None = None) -> BinaryIO | None:
    """A regular file that a program may have written, open for reading, of that name in the open
    folder `within`; None: it is something else, such as a link, which is not followed: the program
    may not read where it leads. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def read_foreign(file: Path) -> bytes | None:
    """The first `LARGEST` bytes of a regular file that a program may have written; None if there is
    none."""
    with suppress(OSError):
        stream = open_foreign(file)
        if stream is not None:
            with stream:
                return stream.read(LARGEST)
    return None


def measure_folder(folder: Path, most_files: int = 20_000) -> int | None:
    """The bytes of all files in a folder that a program may have written; None if it has too many.
    Links are not followed."""
    total, count, folders = 0, 0, [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                if count > most_files:
                    return None
                with suppress(OSError):  # deleted meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
