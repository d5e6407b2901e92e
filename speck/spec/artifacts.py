"""Whether a file can be an artifact: a jar or another zip archive, a tar archive, or a Python
program. Only as much is read as that takes; nothing is unpacked."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import threading
import zlib
from functools import lru_cache
from pathlib import Path

from speck.binding import ArtifactKind
from speck.spec import program_check
from speck.spec.zip_directory import read_names

_PROGRAM_MOST = 1 << 18
_PROGRAM_S = 60.0
"""Until a check is given up that has not used up its CPU time: the machine is overloaded."""
_CHECKING = threading.BoundedSemaphore(2)
"""So many programs are checked at once: each may use a core and some 400 MB."""
_NOTHING = (
    "it is no artifact: send a jar or another zip archive, a tar archive (also .tar.gz), or a"
    " Python program"
)


@lru_cache(4096)
def find_kind(_sha256: str, file: Path) -> ArtifactKind | None:
    """What the file with that SHA-256 is; None if it is nothing that an engine could run."""
    with file.open("rb") as stream:
        head = stream.read(512)
    if head.startswith(b"PK"):
        return ArtifactKind.JAR if _holds_classes(file) else ArtifactKind.ARCHIVE
    if artifact_fault(file) is None:
        return ArtifactKind.ARCHIVE if _is_archive(head) else ArtifactKind.PYFILE
    return ArtifactKind.TEXT if is_text(file) else None


def is_text(file: Path) -> bool:
    """Whether a file is a text of one character or more that an engine could interpret."""
    if not 0 < file.stat().st_size <= _PROGRAM_MOST:
        return False
    content = file.read_bytes()
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _holds_classes(file: Path) -> bool:
    """Also of an archive that cannot be read: its engine's binder then says why."""
    try:
        return any(name.endswith((b".class", b"/MANIFEST.MF")) for name in read_names(file))
    except (OSError, ValueError):
        return True


def _is_archive(head: bytes) -> bool:
    return head.startswith(b"\x1f\x8b") or head[257:262] == b"ustar"


def artifact_fault(file: Path) -> str | None:
    """Why a file cannot be a jar, an archive or a Python program; None if it can."""
    with file.open("rb") as stream:
        head = stream.read(512)
    if head.startswith(b"PK"):
        return _zip_fault(file)
    if head.startswith(b"\x1f\x8b"):
        return _tar_fault(_inflate(head))
    if head[257:262] == b"ustar":
        return _tar_fault(head)
    return _program_fault(file)


def _zip_fault(file: Path) -> str | None:
    try:
        count = sum(1 for _ in read_names(file))
    except (OSError, ValueError) as error:
        return f"it is no zip archive that can be used: {error}"
    return None if count else "it is an empty archive"


def _inflate(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 512)
    except zlib.error:
        return b""


def _tar_fault(block: bytes) -> str | None:
    try:
        tarfile.TarInfo.frombuf(block.ljust(512, b"\0"), "utf-8", "strict")
    except (tarfile.TarError, ValueError) as error:
        return f"it is no tar archive: {error}"
    return None


def _program_fault(file: Path) -> str | None:
    if file.stat().st_size > _PROGRAM_MOST:
        return _NOTHING
    script = Path(program_check.__file__)
    command = [sys.executable, "-I", "-S", str(script), str(file)]
    with _CHECKING:
        try:
            check = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROGRAM_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _NOTHING
    return None if check.returncode == 0 else _NOTHING
