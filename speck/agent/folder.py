"""A site's state folder: what the engine has left there, found without asking the engine.

Laid out as Flink does: `checkpoints/<engine job id>/chk-<n>`, and below `savepoints` and
`carried` folders of any depth. A state is complete once its `_metadata` is there: Flink writes
it last, under another name, and renames it.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from speck.errors import PermanentError

METADATA = "_metadata"
CARRIED = "carried"
_ROOMS = ("checkpoints", "savepoints", CARRIED)
_SAVEPOINTS_DEEP = 4
_MAGIC = 0x4960672D
_HEAD = struct.Struct(">iiq")
_ELSEWHERE = re.compile(rb"/[ -~]*/[0-9a-f]{32}/(?:shared|taskowned)/[0-9a-f-]{36}")
"""How `_metadata` names a file outside its own folder; those inside are named relative to it."""


class StateMissingError(PermanentError):
    """There is no complete state at a path."""


@dataclass(frozen=True, slots=True)
class State:
    """One complete checkpoint or savepoint; `checkpoint_id` is the engine's own number, which
    rises over both kinds alike; `at_ms` is Unix milliseconds."""

    folder: Path
    checkpoint_id: int
    at_ms: int
    bytes: int
    is_savepoint: bool


class StateFolder:
    """The folder in which the site's engine keeps state; nothing outside it is ever touched."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    def locate(self, name: str) -> Path:
        """The folder that the engine names by a path or a `file:` URI, links resolved.

        Raises PermanentError when it lies outside the rooms of this state folder.
        """
        given = self.root / _path_of(name)
        found = given.resolve()
        if not found.exists():
            found = (self.root / unquote(_path_of(name))).resolve()
        inside = found.relative_to(self.root).parts if found.is_relative_to(self.root) else ()
        if len(inside) < 2 or inside[0] not in _ROOMS or "\0" in name:
            raise PermanentError(
                f"cannot touch {name!r}: it is no state below {self.root}, the folder of this"
                " site's agent (--state-folder)"
            )
        return found

    def state(self, name: str) -> State:
        """The complete state at a path. Raises StateMissingError."""
        folder = self.locate(name)
        found = _poll(folder, is_savepoint=not folder.name.startswith("chk-"))
        if found is None:
            raise StateMissingError(f"cannot find a complete state at {name}")
        return found

    def states(self, engine_job_id: str) -> list[State]:
        """Every complete state of one incarnation, newest first."""
        found = []
        for folder in _folders(self.root / "checkpoints" / engine_job_id):
            found.append(_poll(folder, is_savepoint=False))
        for own in self._savepoint_folders(engine_job_id):
            for folder in (own, *_folders(own)):
                found.append(_poll(folder, is_savepoint=True))
        complete = [state for state in found if state is not None]
        return sorted(complete, key=lambda s: (s.checkpoint_id, s.at_ms), reverse=True)

    def drop(self, name: str) -> None:
        """Delete a state; harmless when it is gone."""
        folder = self.locate(name)
        # without its _metadata it is incomplete, should we be cut short
        (folder / METADATA).unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise PermanentError(f"cannot delete {folder}: see to its permissions")

    def free_bytes(self) -> int | None:
        """What is free on its disk; None when the folder is not there."""
        try:
            return shutil.disk_usage(self.root).free
        except OSError:
            return None

    def _savepoint_folders(self, engine_job_id: str) -> Iterator[Path]:
        """The folders of that name below `savepoints`, not looking into complete states."""
        left = [(self.root / "savepoints", 0)]
        while left:
            folder, depth = left.pop()
            if folder.name == engine_job_id:
                yield folder
            elif depth < _SAVEPOINTS_DEEP and not (folder / METADATA).exists():
                left += [(inner, depth + 1) for inner in _folders(folder)]


def files_of(state: State) -> list[tuple[str, Path, int]]:
    """(name within the state, file, bytes) of all its files, in a fixed order.

    Raises PermanentError for what cannot travel: links, and a checkpoint that needs files
    outside its folder (`shared/`, `taskowned/` of incremental checkpoints).
    """
    found = []
    for folder, inner, names in os.walk(state.folder):
        for name in (*inner, *names):
            file = Path(folder, name)
            if file.is_symlink() or not (file.is_dir() or file.is_file()):
                raise PermanentError(f"cannot send {state.folder}: {file} is no plain file")
        for name in names:
            file = Path(folder, name)
            found.append((file.relative_to(state.folder).as_posix(), file, file.stat().st_size))
    foreign = _ELSEWHERE.search((state.folder / METADATA).read_bytes())
    if foreign is not None:
        raise PermanentError(
            f"cannot send {state.folder}: it needs {foreign[0].decode()[-200:]}, which lies outside"
            " it; such a checkpoint is incremental: turn execution.checkpointing.incremental off,"
            " or move the job while its engine can make a savepoint"
        )
    return sorted(found)


def _poll(folder: Path, *, is_savepoint: bool) -> State | None:
    """The state in `folder`; None when it is not complete."""
    try:
        with (folder / METADATA).open("rb") as file:
            head = file.read(_HEAD.size)
            at_ms = os.fstat(file.fileno()).st_mtime_ns // 1_000_000
        if len(head) < _HEAD.size:
            return None
        magic, _, checkpoint_id = _HEAD.unpack(head)
        if magic != _MAGIC:
            return None
        size = sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file())
    except OSError:  # not there, or deleted while we look
        return None
    return State(folder, checkpoint_id, at_ms, size, is_savepoint)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.is_symlink())
    except OSError:
        return []


def _path_of(name: str) -> str:
    """`file:///a`, `file:/a` and `/a` are one path."""
    path = name.removeprefix("file:") if name.startswith("file:") else name
    return "/" + path.lstrip("/") if name.startswith(("file:", "/")) else path
