"""Whose the folders of a program are. A runner that is root must not write, delete or give away by
a name that the program can change: the program would put a link there, and get what it leads to.

    run/            the runner's; the program's group reads it
      start.json, credentials/
      spark/        the program's
      own/          the program's: HOME, TMPDIR, its report and its exit status
    state/          the program's, and the group's that the agent has

So what the runner writes lies where the program cannot write; in the program's own folders the
runner goes by descriptors, and follows no link.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from speck.runner.files import delete_folder, open_folder, walk_folder

RUN = "run"
OWN = "run/own"
SCRATCH = "run/spark"
"""Where Spark keeps what it needs while it runs."""
_STATE_MODE = stat.S_ISGID | 0o770


def is_another(owner: tuple[int, int]) -> bool:
    """Whether a program has another user than the runner."""
    return owner[0] != os.geteuid()


def make_run(folder: Path, owner: tuple[int, int]) -> None:
    """Make the folder `run` of a program of that user and group, if it is not there."""
    make_readable(folder / RUN, owner)
    make_own(folder / OWN, owner)


def make_readable(folder: Path, owner: tuple[int, int]) -> None:
    """Make a folder that a program reads, in one where it cannot write, if it is not there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if is_another(owner):
        os.chown(folder, -1, owner[1], follow_symlinks=False)
        folder.chmod(0o750)


def make_own(folder: Path, owner: tuple[int, int]) -> None:
    """Make a folder of a program's own, in one where it cannot write, if it is not there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, *owner, follow_symlinks=False)


def readable_by(owner: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """The mode, and the user and group, of a file that a program reads and cannot change."""
    return (0o440, (-1, owner[1])) if is_another(owner) else (0o400, owner)


def find_owner(folder: Path) -> tuple[int, int] | None:
    """The user and group of a program; None: its folder `run` is gone, or an older runner made it,
    for the program to write in."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if (folder / RUN).lstat().st_uid == os.geteuid():
            status = (folder / OWN).lstat()
            return status.st_uid, status.st_gid
    return None


def list_users(folder: Path) -> set[int]:
    """The users whose files are in a program's folder, but the runner itself."""
    users = set()
    for name in (RUN, OWN):
        with suppress(OSError):
            users.add((folder / name).lstat().st_uid)
    return users - {os.geteuid()}


def give_state(state: Path, owner: tuple[int, int]) -> None:
    """Give a program its state. The group stays that of the folder, so that the agent, whose group
    it is, reads and deletes it. A folder is given after what it holds."""
    with open_folder(state) as top:
        group = os.fstat(top).st_gid
        for folder, name, status in walk_folder(top):
            os.chown(name, owner[0], group, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                os.chmod(name, _STATE_MODE, dir_fd=folder)
        os.fchown(top, owner[0], group)
        os.fchmod(top, _STATE_MODE)


def take_back(folder: Path) -> None:
    """Take the state of a program that has ended from its user, who may then be another program's.
    Without effect where this has been done. Raises OSError."""
    if not list_users(folder):
        return
    with suppress(FileNotFoundError), open_folder(folder / "state") as top:
        # first: nobody else reaches by a name what is in it, however deeply nested it is
        os.fchown(top, os.geteuid(), -1)
        with suppress(OSError):
            for inner, name, _ in walk_folder(top):
                os.chown(name, os.geteuid(), -1, dir_fd=inner, follow_symlinks=False)
    delete_folder(folder / RUN)
