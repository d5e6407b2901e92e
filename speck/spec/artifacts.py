"""Whether a file can be an artifact: a jar or another zip archive, a tar archive, or a Python
program. Only as much is read as that takes; nothing is unpacked."""

from __future__ import annotations

import ast
import struct
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path

MAX_ENTRIES = 100_000
_DIRECTORY_MOST = 16 << 20
_PROGRAM_MOST = 1 << 18
_TAIL = 22 + 0xFFFF  # the end record of a zip archive, and the longest comment behind it
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
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
        if (fault := directory_fault(file)) is not None:
            return fault
        with zipfile.ZipFile(file) as archive:
            return None if archive.namelist() else "it is an empty archive"
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        return f"it is a damaged zip archive: {error}"


def directory_fault(file: Path) -> str | None:
    """Why the directory of a zip archive is too large to be read; None if it is not.

    Raises OSError, and ValueError for what is no zip archive."""
    try:
        entries, directory_bytes = _measure_directory(file)
    except struct.error as error:
        raise ValueError(f"its directory is damaged: {error}") from error
    if entries > MAX_ENTRIES or directory_bytes > _DIRECTORY_MOST:
        return (
            f"it holds {entries} files in a directory of {directory_bytes} bytes; an archive may"
            f" hold {MAX_ENTRIES} in {_DIRECTORY_MOST} bytes"
        )
    return None


def _measure_directory(file: Path) -> tuple[int, int]:
    """The number of entries and the bytes of a zip archive's directory, by its end record: the
    directory may be too large to be read."""
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TAIL))
        tail = stream.read()
        at = tail.rfind(_END)
        if at < 0:
            raise ValueError("it is no zip archive")
        entries, directory_bytes = struct.unpack_from("<HL", tail, at + 10)
        if at >= 20 and tail[at - 20 : at - 16] == _LOCATOR64:
            stream.seek(struct.unpack_from("<Q", tail, at - 12)[0])
            record = stream.read(56)
            if not record.startswith(_END64):
                raise ValueError("its directory is not where it should be")
            entries, directory_bytes = struct.unpack_from("<QQ", record, 32)
    return entries, directory_bytes


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
