"""Files as answers: the server sends them from its loop, and no thread waits for readers.

What a download does take is room on the disk, and that as long as its reader likes: so it has a
permit until the last byte is sent, and ends when its token is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO, cast

from flask import Response, request
from werkzeug.wsgi import wrap_file

from speck.api.context import context, holder
from speck.errors import StoreFullError, TransientError
from speck.store.room import SparingFile

_CHUNK = 64 * 1024


class Download:
    """A file that is being sent, with what is to be called when that is over."""

    def __init__(self, file: BinaryIO, may_go_on: Callable[[], bool], on_close: Callable[[], None]):
        self._file = file
        self._may_go_on = may_go_on
        self._on_close = on_close

    def read(self, size: int) -> bytes:
        """The next bytes. Raises OSError when the reader may have no more of them."""
        if not self._may_go_on():
            raise PermissionError("the token of this download has been removed or has expired")
        return self._file.read(size)

    def close(self) -> None:
        """End it; does nothing the second time."""
        if not self._file.closed:
            self._file.close()
            self._on_close()

    __del__ = close  # an answer that is never sent


@contextmanager
def sending(what: str) -> Iterator[Callable[[BinaryIO, int, str], Response]]:
    """Hold a permit to send a file. Yields what makes a file of so many bytes, of a media type,
    the answer; that keeps the permit until it is sent. Raises TransientError, which names `what`,
    when no permit is free."""
    shared, mine = context(), holder()
    if not shared.downloads.acquire(mine):
        raise TransientError(
            f"cannot send {what} now: as many files as the service, or one token, sends at once are"
            " on their way; try again later"
        )
    tokens, kept = shared.service.tokens, False

    def send(file: BinaryIO, size: int, media: str) -> Response:
        nonlocal kept
        kept = True
        download = Download(
            file, lambda: tokens.is_valid(mine.token), lambda: shared.downloads.release(mine)
        )
        body = wrap_file(request.environ, cast(BinaryIO, download), _CHUNK)
        response = Response(body, content_type=media, direct_passthrough=True)
        response.content_length = size
        return response

    try:
        yield send
    finally:
        if not kept:
            shared.downloads.release(mine)


def spool(pieces: Iterable[bytes], folder: Path) -> tuple[BinaryIO, int]:
    """A file without a name that holds `pieces`, and its size. Raises StoreFullError."""
    descriptor, name = mkstemp(dir=folder)
    os.unlink(name)
    try:
        raw = SparingFile(descriptor, folder, f"write to {folder}")
    except StoreFullError:
        os.close(descriptor)
        raise
    file = cast(BinaryIO, BufferedRandom(raw))
    try:
        for piece in pieces:
            file.write(piece)
        size = file.tell()
        file.seek(0, os.SEEK_SET)
    except BaseException as error:
        with suppress(OSError):  # what it could not write, it cannot write now either
            file.close()
        if isinstance(error, OSError):
            raise StoreFullError(
                f"cannot write to {folder}: {error.strerror}; free space on that disk"
            ) from error
        raise
    return file, size
