"""Reads tar archives of programs, which nobody trusts, in bounded memory and time.

A header may be as long as it likes, and zeros are compressed a thousand times: tarfile by itself
reads each header whole, keeps all of them, and copies global ones into each member.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path

FAULTS = (tarfile.TarError, OSError, EOFError, ValueError, zlib.error, LZMAError)
"""What reading a damaged archive raises."""

_MOST_BYTES = 1 << 30
_MOST_MEMBERS = 20_000
_MOST_HEADER = 1 << 20
_MOST_HEADERS = 16 << 20
_MOST_GLOBAL = 64 << 10
_MOST_IN_ROW = 16
_PIECE = 1 << 16
_HEADERS = {
    tarfile.XHDTYPE: "pax header",
    tarfile.SOLARIS_XHDTYPE: "pax header",
    tarfile.XGLTYPE: "global pax header",
    tarfile.GNUTYPE_LONGNAME: "name",
    tarfile.GNUTYPE_LONGLINK: "name of the link",
}
"""The kinds of headers that hold as much as they like, by type."""


class TarArchive(tarfile.TarFile):
    """An archive that is read once, from its beginning to its end."""

    members: list[tarfile.TarInfo]
    header_bytes = global_bytes = headers_in_row = 0

    def next(self) -> tarfile.TarInfo | None:
        self.headers_in_row = 0
        return super().next()

    def list_members(self) -> Iterator[tarfile.TarInfo]:
        """The members in order, without the headers that they come from. Raises `FAULTS`, also if
        there are more of them, or of their bytes, than a program may have."""
        total = count = 0
        while (member := self.next()) is not None:
            self.members.clear()
            member.pax_headers = {}
            total, count = total + member.size, count + 1
            if total > _MOST_BYTES or count > _MOST_MEMBERS:
                raise ValueError(f"it holds over {_MOST_MEMBERS} files or {_MOST_BYTES} bytes")
            yield member
        self._read_end()

    def _read_end(self) -> None:
        """To the end of what is compressed: only there do its length and check sum stand."""
        assert self.fileobj is not None
        left = _MOST_BYTES
        while piece := self.fileobj.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"over {_MOST_BYTES} bytes come after the end of the archive")


class _Member(tarfile.TarInfo):
    """A header; `_proc_member` is where tarfile has subclasses look at it."""

    @classmethod
    def fromtarfile(cls, archive: TarArchive) -> tarfile.TarInfo:  # type: ignore[override]
        """tarfile takes whatever is no header for the end, unless it is the first one."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"it is damaged or cut off: {error}") from error

    def _proc_member(self, archive: TarArchive) -> tarfile.TarInfo:
        kind = _HEADERS.get(self.type)
        if kind is not None:
            self._count(archive, kind)
        elif self.type == tarfile.GNUTYPE_SPARSE:
            self._refuse_sparse(self.name)
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    def _count(self, archive: TarArchive, kind: str) -> None:
        archive.headers_in_row += 1
        archive.header_bytes += self.size
        archive.global_bytes += self.size if self.type == tarfile.XGLTYPE else 0
        fault = None
        if self.size > _MOST_HEADER:
            fault = f"has {self.size} bytes, more than {_MOST_HEADER}"
        elif archive.header_bytes > _MOST_HEADERS:
            fault = f"and those before have more than {_MOST_HEADERS} bytes together"
        elif archive.global_bytes > _MOST_GLOBAL:
            fault = f"and global ones before have more than {_MOST_GLOBAL} bytes together"
        elif archive.headers_in_row > _MOST_IN_ROW:
            fault = f"comes after {_MOST_IN_ROW} others of the same member"
        if fault is not None:
            raise tarfile.TarError(f"the {kind} of {self._find_owner(archive)!r:.200} {fault}")

    def _find_owner(self, archive: TarArchive) -> str:
        """The name in the header that follows, which is cut after 100 bytes; else its own."""
        assert archive.fileobj is not None
        if self.size > _MOST_BYTES:
            return self.name
        try:
            end = -(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            archive.fileobj.seek(self.offset + tarfile.BLOCKSIZE + end)
            block = archive.fileobj.read(tarfile.BLOCKSIZE)
            return tarfile.TarInfo.frombuf(block, "utf-8", "replace").name
        except FAULTS:
            return self.name

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, *_: object) -> None:
        self._refuse_sparse(member.name)

    @staticmethod
    def _refuse_sparse(name: str) -> None:
        """The map of its holes may be as long as it likes."""
        raise tarfile.TarError(f"{name!r:.200} is sparse; pack the archive without --sparse")


def open_tar(archive: Path) -> TarArchive:
    """A tar archive, however it is compressed. Raises `FAULTS`, also while it is read."""
    return TarArchive.open(archive, tarinfo=_Member)
