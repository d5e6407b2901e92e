"""Unpacks programs that are tar archives.

Links are made last: until then no name in the folder leads out of it, whatever the archive holds.
(`filter="data"` of tarfile is not in Debian 12's Python 3.11.2, and followed some links up to
3.11.12.)
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from speck.errors import PermanentError
from speck.runner.files import sync_folder
from speck.runner.tar_archive import FAULTS, TarArchive, open_tar


def unpack_tar(archive: Path, target: Path) -> None:
    """Unpack a tar archive into a new folder, durably, for all users to read; a zip archive is left
    as it is. Raises PermanentError for an archive that is damaged, reaches out of its folder, or is
    too large."""
    try:
        with archive.open("rb") as stream:
            is_zip = stream.read(2) == b"PK"
        if not is_zip:
            _make_folder(target)
            _unpack(archive, target)
    except FAULTS as error:
        raise PermanentError(f"the archive cannot be unpacked: {error}") from error


def _unpack(archive: Path, target: Path) -> None:
    with open_tar(archive) as tar:
        links = [each for each in _unpack_files(tar, target) if each.issym()]
    for member in links:
        _place(target, os.path.join(os.path.dirname(member.name), member.linkname))
        path = _place(target, member.name)
        if path.parent.resolve() != target.resolve() / path.parent.relative_to(target):
            raise tarfile.TarError(f"{member.name!r:.200} lies behind a link")
        path.unlink(missing_ok=True)
        path.symlink_to(member.linkname)
    for folder, _, names in os.walk(target):
        for path in (Path(folder, name) for name in names):
            _sync_file(path)
        sync_folder(Path(folder))


def _unpack_files(tar: TarArchive, target: Path) -> Iterator[tarfile.TarInfo]:
    """Unpack all but links; yields each member."""
    for member in tar.list_members():
        path = _place(target, member.name)
        _make_folder(path if member.isdir() else path.parent)
        if member.isfile() or member.islnk():
            path.unlink(missing_ok=True)  # the later one of a name counts
            if member.islnk():
                os.link(_place(target, member.linkname), path)
            else:
                _unpack_file(tar, member, path)
        elif not (member.isdir() or member.issym()):
            raise tarfile.TarError(f"{member.name!r:.200} is neither a file, a folder nor a link")
        yield member


def _unpack_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None  # it is a file
    with source, path.open("xb") as out:
        shutil.copyfileobj(source, out)
    path.chmod(0o755 if member.mode & 0o111 else 0o644)


def _place(target: Path, name: str) -> Path:
    """Where a member lies. Raises TarError for one outside the folder."""
    path = os.path.normpath(name)
    if os.path.isabs(path) or path.split("/")[0] == "..":
        raise tarfile.TarError(f"{name!r:.200} lies outside the archive")
    return target / path


def _make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, which all users may enter."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def _sync_file(file: Path) -> None:
    if not file.is_symlink():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
