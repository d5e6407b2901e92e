"""Whether a file can be an artifact: a jar or another zip archive, a tar archive, or a Python
program. Only as much is read as that takes; nothing is unpacked."""

from __future__ import annotations

import ast
import tarfile
import warnings
import zlib
from pathlib import Path

from speck.spec.zip_directory import read_names

_PROGRAM_MOST = 1 << 18
_NOTHING = (
    "it is no artifact: send a jar or another zip archive, a tar archive (also .tar.gz), or a"
    " Python program"
)


def artifact_fault(file: Path) -> str | None:
    """Why a file cannot be an artifact; None if it can."""
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
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes().decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _NOTHING
    imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))
    return None if imports else _NOTHING  # a word is an expression, but no program
