"""A site's state folder: the checkpoints and savepoints in it, found without the engine's help.

The layout is Flink's: `checkpoints/<engine job id>/chk-<n>`, and folders of any depth below
`savepoints` and `carried`. A state is complete once it has its `_metadata`: Flink writes that file
last, under another name, and renames it.

A job whose `main` sets a checkpoint folder of its own writes to `<folder>/<engine job id>/chk-<n>`
there, as its engine reports. Such checkpoints are listed and sent, but never deleted.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from speck.errors import PermanentError

METADATA = "_metadata"
IDENTITY = ".speck-agent"
_IDENTITY = re.compile("[0-9a-f]{32}")
CARRIED = "carried"
_STATE_FOLDERS = ("checkpoints", "savepoints", CARRIED)
_SAVEPOINTS_DEEP = 4
_MAGIC = 0x4960672D
_HEAD = struct.Struct(">iiq")
_FOREIGN_FILE = re.compile(rb"/[ -~]*/[0-9a-f]{32}/(?:shared|taskowned)/[0-9a-f-]{36}")
"""How `_metadata` names a file outside its own folder; files inside it have relative names."""


class StateMissingError(PermanentError):
    """The path holds no complete state."""


@dataclass(frozen=True, slots=True)
class State:
    """One complete checkpoint or savepoint. `checkpoint_id` is the engine's number, which rises
    over checkpoints and savepoints together; `at_ms` is in Unix milliseconds."""

    folder: Path
    checkpoint_id: int
    at_ms: int
    bytes: int
    is_savepoint: bool


class StateFolder:
    """The folder in which the site's engine keeps state. Outside it the agent reads only
    checkpoints in folders that have an engine job's id as their name, and changes nothing."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    def identity(self) -> str:
        """32 hex digits that lie in this folder, made at the first call: a folder on another
        machine, or a new one on this, has others. Raises PermanentError."""
        file = self.root / IDENTITY
        try:
            if not file.exists():
                fresh = self.root / f"{IDENTITY}.{secrets.token_hex(8)}"
                try:
                    with fresh.open("w") as out:
                        out.write(secrets.token_hex(16))
                        out.flush()
                        os.fsync(out.fileno())  # or a power failure may leave it empty
                    with suppress(FileExistsError):  # another agent of this folder was faster
                        os.link(fresh, file)
                finally:
                    fresh.unlink(missing_ok=True)
            identity = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PermanentError(f"cannot use the state folder {self.root}: {error}") from error
        if not _IDENTITY.fullmatch(identity):
            raise PermanentError(
                f"cannot read {file}: it must hold 32 hex digits; delete it if it is damaged, and"
                " accept the agent with `speck site update NAME --new-agent`"
            )
        return identity

    def locate(self, name: str, engine_job_id: str | None = None) -> Path:
        """The folder for a path or `file:` URI of the engine, with symbolic links resolved.

        Raises PermanentError when it is not a state below this folder, nor a checkpoint of the job
        `engine_job_id` in a folder of its own.
        """
        candidate = self.root / _path_of(name)
        path = candidate.resolve()
        if not path.exists():
            path = (self.root / unquote(_path_of(name))).resolve()
        if engine_job_id is not None and _is_checkpoint(path, engine_job_id):
            return path
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        if len(parts) < 2 or parts[0] not in _STATE_FOLDERS or "\0" in name:
            raise PermanentError(
                f"cannot use {name!r}: it is not a state below {self.root}, the state folder of"
                " this site's agent (--state-folder)"
            )
        return path

    def state(self, name: str, engine_job_id: str | None = None) -> State:
        """The complete state at a path, see `locate`. Raises StateMissingError."""
        folder = self.locate(name, engine_job_id)
        state = _read_state(folder, is_savepoint=not folder.name.startswith("chk-"))
        if state is None:
            raise StateMissingError(f"cannot find a complete state at {name}")
        return state

    def states(self, engine_job_id: str, own: str | None = None) -> list[State]:
        """Every complete state of one incarnation, newest first; also in the folder `own` (a path
        or URI) of its checkpoints. Raises PermanentError if that cannot be listed."""
        states = []
        checkpoints = _folders(self.root / "checkpoints" / engine_job_id)
        if own is not None:
            checkpoints += _list_own(own, engine_job_id)
        for folder in checkpoints:
            states.append(_read_state(folder, is_savepoint=False))
        for savepoints in self._savepoint_folders(engine_job_id):
            for folder in (savepoints, *_folders(savepoints)):
                states.append(_read_state(folder, is_savepoint=True))
        complete = [state for state in states if state is not None]
        return sorted(complete, key=lambda s: (s.checkpoint_id, s.at_ms), reverse=True)

    def drop(self, name: str) -> None:
        """Delete a state; it is no error if the state does not exist."""
        folder = self.locate(name)
        # without _metadata the rest counts as incomplete, should this be interrupted
        (folder / METADATA).unlink(missing_ok=True)
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise PermanentError(f"cannot delete {folder}: check its permissions")

    def free_bytes(self) -> int | None:
        """Free bytes on its disk; None when the folder does not exist, or its file system tells no
        size (as a tmpfs without a limit)."""
        try:
            disk = shutil.disk_usage(self.root)
        except OSError:
            return None
        return disk.free if disk.total else None

    def _savepoint_folders(self, engine_job_id: str) -> Iterator[Path]:
        """The folders of that name below `savepoints`, without searching complete states."""
        remaining = [(self.root / "savepoints", 0)]
        while remaining:
            folder, depth = remaining.pop()
            if folder.name == engine_job_id:
                yield folder
            elif depth < _SAVEPOINTS_DEEP and not (folder / METADATA).exists():
                remaining += [(inner, depth + 1) for inner in _folders(folder)]


def files_of(state: State) -> list[tuple[str, Path, int]]:
    """(name within the state, file, bytes) of all its files, in a fixed order.

    Raises PermanentError for a state that cannot be transferred: one with symbolic links, or one
    that needs files outside its folder (`shared/`, `taskowned/` of incremental checkpoints).
    """
    files = []
    for folder, inner, names in os.walk(state.folder):
        for name in (*inner, *names):
            file = Path(folder, name)
            if file.is_symlink() or not (file.is_dir() or file.is_file()):
                raise PermanentError(f"cannot send {state.folder}: {file} is not a regular file")
        for name in names:
            file = Path(folder, name)
            files.append((file.relative_to(state.folder).as_posix(), file, file.stat().st_size))
    foreign = _FOREIGN_FILE.search((state.folder / METADATA).read_bytes())
    if foreign is not None:
        raise PermanentError(
            f"cannot send {state.folder}: it needs {foreign[0].decode()[-200:]}, which lies outside"
            " it, as with incremental checkpoints: turn execution.checkpointing.incremental off,"
            " or move the job while its engine can take a savepoint"
        )
    return sorted(files)


def _read_state(folder: Path, *, is_savepoint: bool) -> State | None:
    """The state in `folder`; None when it is incomplete."""
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
    except OSError:  # missing, or deleted meanwhile
        return None
    return State(folder, checkpoint_id, at_ms, size, is_savepoint)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(f for f in folder.iterdir() if f.is_dir() and not f.is_symlink())
    except OSError:
        return []


def _list_own(uri: str, engine_job_id: str) -> list[Path]:
    """The checkpoints in a job's own folder. Raises PermanentError unless it can be listed: an
    empty list would mean that there is none."""
    folder = Path(_path_of(uri)).resolve()
    if not folder.exists():
        folder = Path(unquote(_path_of(uri))).resolve()
    try:
        if ":" in uri.removeprefix("file:").partition("/")[0] or folder.name != engine_job_id:
            raise ValueError("it is no folder on this machine's disk that bears the job's id")
        inner = [each.resolve() for each in folder.iterdir()]
    except (OSError, ValueError) as error:
        raise PermanentError(f"cannot list the checkpoints in {uri}: {error}") from error
    return sorted(each for each in inner if _is_checkpoint(each, engine_job_id))


def _is_checkpoint(path: Path, engine_job_id: str) -> bool:
    """Whether a resolved path is the folder of one of a job's checkpoints."""
    return path.parent.name == engine_job_id and re.fullmatch(r"chk-\d+", path.name) is not None


def _path_of(name: str) -> str:
    """The path that a name means: `file:///a`, `file:/a` and `/a` are the same."""
    path = name.removeprefix("file:") if name.startswith("file:") else name
    return "/" + path.lstrip("/") if name.startswith(("file:", "/")) else path
