"""A site's state folder: the states of its engine in it, found without the engine's help.

Where they lie, and when one is complete, is said by the layout that comes with each command
(`speck.agent.layout`). Carried states lie below `carried`.

A job may write its states to a folder of its own, as its engine reports. Such states are listed and
sent, but never deleted.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from speck.agent.layout import StateLayout
from speck.agent.state_files import StateFiles
from speck.errors import PermanentError

IDENTITY = ".speck-agent"
_IDENTITY = re.compile("[0-9a-f]{32}")
CARRIED = "carried"


class StateMissingError(PermanentError):
    """The path holds no complete state."""


@dataclass(frozen=True, slots=True)
class State:
    """One complete state. `number` rises over all states of an incarnation; `at_ms` is in Unix
    milliseconds; `proof` is the file that makes it complete."""

    folder: Path
    number: int
    at_ms: int
    bytes: int
    on_request: bool
    proof: Path


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

    def locate(self, name: str, layout: StateLayout, engine_job_id: str | None = None) -> Path:
        """The folder for a path or `file:` URI of the engine, with symbolic links resolved.

        Raises PermanentError when it is not a state below this folder, nor one of the job
        `engine_job_id` in a folder of its own.
        """
        candidate = self.root / _path_of(name)
        path = candidate.resolve()
        if not path.exists():
            path = (self.root / unquote(_path_of(name))).resolve()
        if engine_job_id is not None and _is_own(path, layout, engine_job_id):
            return path
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
        if len(parts) < 2 or parts[0] not in {*layout.roots, CARRIED} or "\0" in name:
            raise PermanentError(
                f"cannot use {name!r}: it is not a state below {self.root}, the state folder of"
                " this site's agent (--state-folder)"
            )
        return path

    def find_layout(self, name: str, layouts: list[StateLayout]) -> StateLayout:
        """The layout of the engine that a state belongs to: one by which it is complete or, if
        there is none, lies where that engine keeps states."""
        for layout in layouts:
            with suppress(PermanentError):
                if layout.find_proofs(self.locate(name, layout)):
                    return layout
        for layout in layouts:
            with suppress(PermanentError):
                self.locate(name, layout)
                return layout
        return layouts[0]

    def state(self, name: str, layout: StateLayout, engine_job_id: str | None = None) -> State:
        """The complete state at a path, see `locate`. Raises StateMissingError."""
        folder = self.locate(name, layout, engine_job_id)
        inside = folder.is_relative_to(self.root)
        relative = folder.relative_to(self.root).as_posix() if inside else ""
        state = _read_state(folder, layout, inside and layout.is_on_request(relative))
        if state is None:
            raise StateMissingError(f"cannot find a complete state at {name}")
        return state

    def states(
        self, engine_job_id: str, layout: StateLayout, own: str | None = None
    ) -> list[State]:
        """Every complete state of one incarnation, newest first; also in the folder `own` (a path
        or URI) of its own. Raises PermanentError if that cannot be listed."""
        folders = list(layout.find(self.root, engine_job_id))
        if own is not None:
            folders += [(each, False) for each in _list_own(own, layout, engine_job_id)]
        states = [_read_state(folder, layout, on_request) for folder, on_request in folders]
        complete = [state for state in states if state is not None]
        return sorted(complete, key=lambda s: (s.number, s.at_ms), reverse=True)

    def drop(self, name: str, layout: StateLayout) -> None:
        """Delete a state; it is no error if the state does not exist."""
        folder = self.locate(name, layout)
        # without its proofs the rest counts as incomplete, should this be interrupted
        for _, proof in layout.find_proofs(folder):
            proof.unlink(missing_ok=True)
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


def open_files(state: State, layout: StateLayout) -> StateFiles:
    """The files of a state, to be closed by the caller.

    Raises PermanentError for a state that cannot be transferred: one with symbolic links, or one
    that needs files outside its folder.
    """
    files = StateFiles(state.folder)
    try:
        _refuse_foreign(state, files, layout)
    except BaseException:
        files.close()
        raise
    return files


def _refuse_foreign(state: State, files: StateFiles, layout: StateLayout) -> None:
    if not layout.foreign:
        return
    with files.open(state.proof.relative_to(state.folder).as_posix()) as proof:
        foreign = re.search(layout.foreign.encode(), proof.read())
    if foreign is not None:
        raise PermanentError(
            f"cannot send {state.folder}: it needs {foreign[0].decode()[-200:]}, which lies outside"
            f" it{layout.hint}"
        )


def _read_state(folder: Path, layout: StateLayout, on_request: bool) -> State | None:
    """The state in `folder`; None when it is incomplete."""
    proofs = layout.find_proofs(folder)
    if not proofs:
        return None
    number, proof = proofs[-1]
    try:
        at_ms = proof.stat().st_mtime_ns // 1_000_000
        size = sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file())
    except OSError:  # deleted meanwhile
        return None
    return State(folder, number, at_ms, size, on_request, proof)


def _list_own(uri: str, layout: StateLayout, engine_job_id: str) -> list[Path]:
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
    return sorted(each for each in inner if _is_own(each, layout, engine_job_id))


def _is_own(path: Path, layout: StateLayout, engine_job_id: str) -> bool:
    """Whether a resolved path is a state in a job's own folder."""
    return path.parent.name == engine_job_id and layout.is_own(path.name)


def _path_of(name: str) -> str:
    """The path that a name means: `file:///a`, `file:/a` and `/a` are the same."""
    path = name.removeprefix("file:") if name.startswith("file:") else name
    return "/" + path.lstrip("/") if name.startswith(("file:", "/")) else path
