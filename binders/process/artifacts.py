"""Judges programs before they are started; nothing of them is run."""

from __future__ import annotations

import re
from collections.abc import Set

from speck.binding import Artifact, ArtifactKind, Judgement
from speck.model.values import show
from speck.runner.tar_archive import FAULTS, open_tar
from speck.spec.zip_directory import read_names

_ENTRY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
_MAIN = b"__main__.py"


def judge_program(artifact: Artifact, entry: str, *, hint: bool = True) -> Judgement:
    """Whether a job can be started from a Python program, from a zipapp or a wheel by its module
    (`package.module`, or `package.module:function`), or from a tar archive by a file in it."""
    if artifact.kind is ArtifactKind.PYFILE:
        fault = "a Python program has no entry; leave it out" if entry else None
        return Judgement(fault, at_entry=True)
    with artifact.file.open("rb") as stream:
        is_zip = stream.read(2) == b"PK"
    return Judgement(_zip_fault(artifact, entry) if is_zip else _tar_fault(artifact, entry), True)


def _zip_fault(artifact: Artifact, entry: str) -> str | None:
    try:
        names = set(read_names(artifact.file))
    except (OSError, ValueError) as error:
        return f"the archive cannot be read: {error}"
    if not entry:
        if _MAIN in names:
            return None
        return "missing: the archive has no __main__.py; name the module that starts the job"
    if not _ENTRY.fullmatch(entry):
        return f"{show(entry)} is no module like package.module, or package.module:function"
    module = entry.partition(":")[0]
    return None if _has(names, module) else f"the archive has no module {show(module)}"


def _has(names: Set[bytes], module: str) -> bool:
    path = module.replace(".", "/").encode()
    return bool({path + b".py", path + b"/__main__.py", path + b"/__init__.py"} & names)


def has_module(artifact: Artifact, module: str) -> bool:
    """Whether an artifact is an archive of Python with this module. Raises OSError."""
    if artifact.kind is not ArtifactKind.ARCHIVE:
        return False
    try:
        return _has(set(read_names(artifact.file)), module)
    except ValueError:  # it is no zip archive
        return False


def _tar_fault(artifact: Artifact, entry: str) -> str | None:
    """A file in a tar archive is started itself: a binary, or a script with `#!`."""
    if not entry:
        return "missing: name the file in the archive that starts the job"
    if entry.startswith("/") or ".." in entry.split("/"):
        return f"{show(entry)} is no path within the archive"
    try:
        with open_tar(artifact.file) as tar:
            named = [
                it.isfile() and it.mode & 0o111 for it in tar.list_members() if it.name == entry
            ]
    except FAULTS as error:
        return f"the archive cannot be read: {error}"
    if not named:
        return f"the archive has no file {show(entry)}"
    return None if named[-1] else f"{show(entry)} is not executable"  # the later one counts
