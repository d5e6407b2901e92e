"""Claims: that a program of this id has been started once says its folder, for ever.

All that a program needs is put together in a folder beside, which is then renamed: so there is a
claim with everything, or none, and of two only one is first. A claim outlives the program; the
lease (`lease.py`) says whether it lives.

    programs/<id>/claim.json    what was asked for; never changes
                  record.json   what has become of it
                  artifact      shared with the folder of artifacts, which may lose its own
                  program/      an archive of a program that Python does not run, unpacked
                  state/        the program's own; `checkpoint` in it is the number of its state
                  run/          for its run, and not carried to other sites (`owners.py`)
                  request       the number of the last checkpoint that was asked for
                  lease, log, log.1

Of a program that ended long ago only claim, record and state are left.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from speck.errors import PermanentError
from speck.runner.copying import copy_state
from speck.runner.files import (
    delete_folder,
    open_folder,
    open_foreign,
    read_own,
    replace_file,
    sync_folder,
    write_json,
)
from speck.runner.owners import give_state, is_another, make_run, take_back
from speck.runner.processes import ProgramSession
from speck.runner.settings import Settings
from speck.runner.unpacking import unpack_tar

FOLDER = "programs"
CHECKPOINT = "checkpoint"
PROCESS, SPARK = "process", "spark"
_LABEL = re.compile(r"[0-9a-z]{1,64}")
_HIGHEST = (1 << 64) - 1
_ARCHIVE = "archive"
_KEPT = ("claim.json", "record.json", "state")
_MEMORY_FLAG = "--memory-mb"


class TwiceError(PermanentError):
    """The id has been claimed before."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a program was started from. `label` is speck's id of the incarnation, `base` the state
    that it begins from, `engine` the kind of engine whose job it is, `memory_mb` what it may use
    (None: what its arguments name, or as for all). One that is `burnt` never starts."""

    label: str
    name: str
    artifact: str = ""
    kind: str = ""
    entry: str = ""
    args: tuple[str, ...] = ()
    width: int = 0
    base: str | None = None
    at_ms: int = 0
    burnt: bool = False
    engine: str = PROCESS
    memory_mb: int | None = None

    @property
    def has_spark(self) -> bool:
        return self.engine == SPARK

    def find_memory_mb(self, settings: Settings) -> int | None:
        """The program's limit: its own, or that of all; None: none."""
        if self.memory_mb is not None:
            return self.memory_mb
        pairs = itertools.pairwise(self.args)
        texts = [value for flag, value in pairs if flag == _MEMORY_FLAG and value.isdecimal()]
        otherwise = settings.spark_memory_mb if self.has_spark else settings.memory_mb
        return int(texts[-1]) if texts and int(texts[-1]) else otherwise

    def find_memory_bytes(self, settings: Settings) -> int | None:
        memory_mb = self.find_memory_mb(settings)
        return None if memory_mb is None else memory_mb << 20

    def find_stop_s(self, settings: Settings) -> float:
        """How many seconds the program may take to end."""
        return settings.spark_stop_s if self.has_spark else settings.stop_s


@dataclass(frozen=True, slots=True)
class Record:
    """What has become of a program. `wanted` is `run`, `stop` or `cancel`; `trigger` that of the
    stop. `has_run`: it was ready once. `failures` are (Unix ms, reason, end of the log)."""

    state: str = "starting"
    wanted: str = "run"
    trigger: str = ""
    saved: bool = False
    has_run: bool = False
    starts: int = 0
    session: ProgramSession | None = None
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    ended_ms: int = 0

    @property
    def over(self) -> bool:
        return self.state in ("finished", "canceled", "failed")


def read_claim(folder: Path) -> tuple[Claim, Record] | None:
    """A claim and what has become of it; None: the folder holds none."""
    if not any(os.path.lexists(folder / name) for name in ("claim.json", "record.json")):
        return None
    claim, record = _parse_claim(folder), _parse_record(folder)
    if record is None:  # nobody knows whether it has ended
        return claim or Claim(folder.name, folder.name), _give_up(Record(), "record")
    if claim is None:  # nor here what it was started from
        return Claim(folder.name, folder.name), _give_up(record, "claim")
    return claim, record


def _parse_claim(folder: Path) -> Claim | None:
    content = read_own(folder / "claim.json") or {}
    try:
        claim = Claim(**_pick(Claim, content))
        return replace(claim, args=tuple(claim.args))
    except (TypeError, ValueError):
        return None


def _parse_record(folder: Path) -> Record | None:
    content = read_own(folder / "record.json")
    if content is None:
        return None
    try:
        record = Record(**_pick(Record, content))
        failures = [(at_ms, why, log) for at_ms, why, log in record.failures]
        session = content.get("session")
        if session is not None:
            session = ProgramSession(**_pick(ProgramSession, session))
        return replace(record, failures=failures, session=session)
    except (TypeError, ValueError):
        return None


def _pick(kind: type, content: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows of: a newer one may have been here."""
    return {each.name: content[each.name] for each in fields(kind) if each.name in content}


def _give_up(record: Record, what: str) -> Record:
    """Of a program of which that is damaged: it must not begin once more."""
    if record.over:
        return record
    why = f"its {what} is damaged; it is not started again"
    return replace(record, wanted="cancel", failures=[*record.failures, (now_ms(), why, "")])


def store_record(folder: Path, record: Record) -> None:
    write_json(folder / "record.json", asdict(record))


def make_claim(root: Path, claim: Claim, artifact: Path | None, owner: tuple[int, int]) -> Path:
    """Claim an id, with a copy of its base. `artifact` is the file to run (None: burnt), `owner`
    the user and group of the program. Raises TwiceError, PermanentError and OSError; then nothing
    is left."""
    if not _LABEL.fullmatch(claim.label):
        raise PermanentError(f"{claim.label!r:.80} is no id")
    final = root / claim.label
    if final.exists():
        raise TwiceError(f"{claim.label} has been started")
    fresh = root / f".{uuid4().hex}"
    fresh.mkdir(parents=True)
    fresh.chmod(0o771 if is_another(owner) else 0o750)  # programs reach what is theirs in it
    try:
        if artifact is not None:
            _fill(fresh, claim, artifact, owner)
        write_json(fresh / "claim.json", asdict(claim))
        (fresh / "claim.json").chmod(0o600)
        state = "failed" if claim.burnt else "starting"
        store_record(fresh, Record(state=state, ended_ms=claim.at_ms if claim.burnt else 0))
        (fresh / "record.json").chmod(0o600)
        try:
            fresh.rename(final)
        except OSError as error:
            if final.exists():
                raise TwiceError(f"{claim.label} has been started") from error
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    sync_folder(root)
    return final


def _fill(folder: Path, claim: Claim, artifact: Path, owner: tuple[int, int]) -> None:
    base = _find_base(claim.base)
    _take_artifact(artifact, folder / "artifact")
    if claim.kind == _ARCHIVE:
        unpack_tar(folder / "artifact", folder / "program")
        if (folder / "program").exists() and not (folder / "program" / claim.entry).is_file():
            raise PermanentError(f"the archive has no file {claim.entry!r:.200}")
    if base is None:
        (folder / "state").mkdir()
    else:
        copy_state(base, folder / "state", share=not is_another(owner))
    make_run(folder, owner)
    if is_another(owner):
        give_state(folder / "state", owner)


def _take_artifact(artifact: Path, copy: Path) -> None:
    """Share the artifact, or copy it where that cannot be. A link is none: it would lead to what
    only the runner may read."""
    try:
        os.link(artifact, copy, follow_symlinks=False)
    except FileNotFoundError:
        raise PermanentError(f"the artifact {artifact.name} is not here") from None
    except OSError:
        shutil.copyfile(artifact, copy, follow_symlinks=False)
    stream = open_foreign(copy)
    if stream is None:
        raise PermanentError(f"the artifact {artifact.name} is no file")
    with stream:
        os.fchmod(stream.fileno(), 0o644)
        os.fsync(stream.fileno())


def drop_program(folder: Path) -> None:
    """Delete what only a start needs."""
    (folder / "artifact").unlink(missing_ok=True)
    shutil.rmtree(folder / "program", ignore_errors=True)


def strip(folder: Path) -> None:
    """Delete all but the claim, the record and the state, which the service deletes when it is of
    no use any more. Raises OSError."""
    take_back(folder)
    for path in folder.iterdir():
        if path.name not in _KEPT:
            if path.is_dir() and not path.is_symlink():
                delete_folder(path)
            else:
                path.unlink(missing_ok=True)


def _find_base(location: str | None) -> Path | None:
    if location is None:
        return None
    base = Path(location.removeprefix("file://"))
    if not (base / CHECKPOINT).is_file():
        raise PermanentError(f"no state is at {location}")
    return base


def list_claims(root: Path) -> Mapping[str, tuple[Claim, Record]]:
    """All claims by id; what a start that was cut short has left is deleted."""
    claims = {}
    for folder in sorted(root.iterdir()):
        if folder.name.startswith("."):
            shutil.rmtree(folder, ignore_errors=True)
        elif (claim := read_claim(folder)) is not None:
            claims[folder.name] = claim
    return claims


def read_checkpoint(state: Path) -> tuple[int, int] | None:
    """The number of a state and when it was written (Unix ms); None: it is not complete."""
    with suppress(OSError):
        stream = open_foreign(state / CHECKPOINT)
        if stream is not None:
            with stream:
                content, status = stream.read(8), os.fstat(stream.fileno())
            if len(content) == 8:
                return int.from_bytes(content, "big"), status.st_mtime_ns // 1_000_000
    return None


def raise_checkpoint(state: Path) -> None:
    """Number the state that a program has left as it ended, above what it has numbered itself."""
    number, _ = read_checkpoint(state) or (0, 0)
    content = min(number + 1, _HIGHEST).to_bytes(8, "big")
    with open_folder(state) as folder:
        status = os.fstat(folder)
        if status.st_uid == os.geteuid():
            replace_file(folder, CHECKPOINT, content)
        else:
            owner = status.st_uid, status.st_gid
            replace_file(folder, CHECKPOINT, content, mode=0o640, owner=owner)


def now_ms() -> int:
    return int(time.time() * 1000)
